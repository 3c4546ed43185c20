"""Pressure stall information: how long tasks of this machine waited for a core or for memory."""

from __future__ import annotations

from pathlib import Path

from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

PROC_PRESSURE = Path("/proc/pressure")
_RESOURCES = ("cpu", "memory")
_SECOND_US = 1_000_000


def create(watched: Watched) -> PressureMetric | None:
    """Return None where the kernel does not count it, or does not let us read."""
    try:
        for resource in _RESOURCES:
            (PROC_PRESSURE / resource).read_text()
    except OSError:
        return None
    return PressureMetric()


class PressureMetric:
    def __init__(self) -> None:
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the share of the second in which at least one task of the machine waited."""
        totals_us = {
            f"{resource}_pressure_ratio": parse_pressure((PROC_PRESSURE / resource).read_text())
            for resource in _RESOURCES
        }
        rates = self._rates.update(tick, totals_us)
        return {
            name: None if rate is None else min(1.0, rate / _SECOND_US)
            for name, rate in rates.items()
        }


def parse_pressure(text: str) -> int:
    """Return the microseconds of the "some" line since boot."""
    some = next(line for line in text.splitlines() if line.startswith("some"))
    return int(some.rpartition("total=")[2])
