"""The times at which a rank is sampled, 1 s apart.

Tick 0 is the receipt of *go*; tick k is k seconds later.

A reading belongs to a tick, and a tick that nobody read is a hole in the series: it is never
filled in, and no rate is computed across it. All instants are one machine's monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

TICK_S = 1.0
# A timer may fire a hair before its instant; such a reading belongs to the tick it waited for.
_EARLY_S = 0.005
# A reading later than this is not one of its tick: the rate over a second would be wrong by as
# much, and by the same share the other way in the second after it.
MAX_LATENESS_S = 0.25


@dataclass(frozen=True, slots=True)
class CounterReading:
    """A counter that only grows, such as bytes received, as it stood at a tick."""

    tick: int
    value: int


def rate_per_s(previous: CounterReading | None, current: CounterReading) -> float | None:
    """Return the counter's growth over the second that ends at `current.tick`.

    None where it is not known: there is no reading of the tick just before (the first reading,
    or a hole), or the counter fell, as it does when an interface is reset.
    """
    if previous is None or current.tick != previous.tick + 1 or current.value < previous.value:
        return None
    return float(current.value - previous.value)


class Rates:
    """Converts a group of counters to rates per second; keeps the previous reading of each."""

    def __init__(self) -> None:
        self._previous: dict[str, CounterReading] = {}

    def update(self, tick: int, counters: Mapping[str, int]) -> dict[str, float | None]:
        """Return each counter's growth over the second that ends at `tick`, None if unknown."""
        readings = {name: CounterReading(tick, value) for name, value in counters.items()}
        previous, self._previous = self._previous, readings
        return {name: rate_per_s(previous.get(name), now) for name, now in readings.items()}


def tick_of(now_s: float, go_s: float) -> int:
    """Return the last tick whose instant has come; negative before *go*."""
    return math.floor(now_s - go_s + _EARLY_S)


def instant_of(tick: int, go_s: float) -> float:
    """Return when a tick is to be read. Absolute, so that lateness does not add up."""
    return go_s + tick


def next_tick(now_s: float, go_s: float) -> int:
    """Return the first tick still to come, tick 0 at the earliest.

    A sampler that woke late goes on here: the ticks that it missed stay holes instead of being
    read in a burst, all with the same value.
    """
    return max(tick_of(now_s, go_s) + 1, 0)


def is_on_time(tick: int, now_s: float, *, go_s: float) -> bool:
    """Whether a reading taken now is one of `tick`."""
    return -_EARLY_S <= now_s - instant_of(tick, go_s) <= MAX_LATENESS_S
