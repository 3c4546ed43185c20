"""Machine time: number, hours and price of machines, and what adaptive repetitions saved. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from farm.configuration.spec import ServerPlacement
from farm.measuring.precision import Target

_S_AN_HOUR = 3600


def machine_count(
    world_size: int, server_count: int, server_placement: str | None, *, ranks_per_agent: int = 1
) -> int:
    """Return the machines of ranks that train, and of servers that are not beside these.

    The last machine may have fewer ranks, which an import may say.
    """
    return -(-world_size // ranks_per_agent) + serving_machine_count(server_count, server_placement)


def serving_machine_count(server_count: int, server_placement: str | None) -> int:
    """Return the machines that only serve.

    A table that does not say where its servers are has them on machines of their own.
    """
    return 0 if server_placement == ServerPlacement.COLLOCATED.value else server_count


def cost_usd(machines: int, time_s: float | None, usd_per_hour: float | None) -> float | None:
    """Return the cost of machines for a time; None if time or price is not known."""
    if time_s is None or usd_per_hour is None:
        return None
    return machines * time_s * usd_per_hour / _S_AN_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCost:
    """`machine_s`: duration times agents, over all attempts of the cell, failed ones too."""

    target: Target
    repetition_count: int  # measured ones
    machine_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """`fixed_machine_s`: what `fixed_repetitions` of every cell would have taken."""

    machine_s: float
    fixed_machine_s: float
    fixed_repetitions: int

    @property
    def machine_hours_saved(self) -> float:
        """Negative where a fixed number would have been cheaper."""
        return (self.fixed_machine_s - self.machine_s) / _S_AN_HOUR


def saving(cells: Collection[CellCost]) -> Saving | None:
    """Compare with as many repetitions of every cell as the most demanding reached cell needed.

    That number is the smallest that makes every one of them as precise, so who fixes it in
    advance has to know it. A cell that has not reached the target, because of the cap or since it
    cannot run, would be no better off, and is taken to cost the same either way. None as long as
    no cell has reached it.
    """
    reached = [c for c in cells if c.target is Target.REACHED and c.repetition_count]
    if not reached:
        return None
    most = max(c.repetition_count for c in reached)
    spent_s = math.fsum(c.machine_s for c in cells)
    added_s = math.fsum(c.machine_s * (most / c.repetition_count - 1) for c in reached)
    return Saving(machine_s=spent_s, fixed_machine_s=spent_s + added_s, fixed_repetitions=most)
