"""Converts the counters of a group of metrics to rates per second."""

from __future__ import annotations

from collections.abc import Mapping

from farm.sampling.ticks import CounterReading, rate_per_s


class Rates:
    """Keeps the previous reading of each named counter."""

    def __init__(self) -> None:
        self._previous: dict[str, CounterReading] = {}

    def update(self, tick: int, counters: Mapping[str, int]) -> dict[str, float | None]:
        """Return each counter's growth over the second that ends at `tick`, None if unknown."""
        readings = {name: CounterReading(tick, value) for name, value in counters.items()}
        previous, self._previous = self._previous, readings
        return {name: rate_per_s(previous.get(name), now) for name, now in readings.items()}
