"""Counts how often the agent's cores were slowed down because of heat."""

from __future__ import annotations

from pathlib import Path

from farm.measuring.noise import THERMAL_EXTRA
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

SYS_CPU = Path("/sys/devices/system/cpu")
# A package's heat concerns all its cores, and a file a core would be dear on machines with many.
_MOST_FILES = 8


def create(watched: Watched) -> ThermalMetric | None:
    """Return None where the processor does not tell, as in most VMs."""
    files = [
        file
        for cpu in watched.cpus
        for file in sorted((SYS_CPU / f"cpu{cpu}" / "thermal_throttle").glob("*_throttle_count"))
    ]
    return ThermalMetric(files[:_MOST_FILES]) if files else None


class ThermalMetric:
    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the rate of the file that grew fastest: cores count the same event each."""
        counters = {str(file): int(file.read_text()) for file in self._files}
        known = [r for r in self._rates.update(tick, counters).values() if r is not None]
        return {THERMAL_EXTRA: max(known, default=None)}
