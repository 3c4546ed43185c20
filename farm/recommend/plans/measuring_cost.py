"""What one measurement costs: its machines, for as long as it holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.recommend.configuration import Configuration

# Lease, rendezvous, fork, first step and leaving, with the template warm and machines up. Booting
# and importing are not in it, since a machine of a farm serves many jobs.
START_UP_S = 10.0
USD, MACHINE_HOURS = "USD", "machine hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringCosts:
    """`unit`: `USD` where every configuration has a price, else `MACHINE_HOURS`."""

    unit: str
    of_each: tuple[float, ...]


def measuring_costs(
    configurations: Sequence[Configuration],
    step_times_s: Sequence[float] | None,
    *,
    step_count: int,
    prices_usd_per_hour: Mapping[str, float],
    start_up_s: float = START_UP_S,
) -> MeasuringCosts:
    """Return machines x (start-up + steps x step time), in machine hours or in USD.

    `step_times_s`: expected; None where nothing is known of them, and then only the start-up
    counts. `step_count`: with those of the warm-up. Prices: of one VM, by instance type.
    """
    times_s = step_times_s or [0.0] * len(configurations)
    machine_hours = [
        c.machine_count * (start_up_s + step_count * time_s) / 3600
        for c, time_s in zip(configurations, times_s, strict=True)
    ]
    prices = [prices_usd_per_hour.get(c.instance_type or "") for c in configurations]
    in_usd = [hours * (price or 0.0) for hours, price in zip(machine_hours, prices, strict=True)]
    # What costs nothing, be it by rounding, cannot be weighed by its cost.
    if not all(in_usd):
        return MeasuringCosts(unit=MACHINE_HOURS, of_each=tuple(machine_hours))
    return MeasuringCosts(unit=USD, of_each=tuple(in_usd))
