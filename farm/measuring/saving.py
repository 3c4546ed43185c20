"""Machine time that adaptive repetitions saved against a fixed number. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from farm.measuring.precision import Target


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
        return (self.fixed_machine_s - self.machine_s) / 3600


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
