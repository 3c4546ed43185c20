"""Power of the machine's processors, from the energy counters that Linux calls powercap (RAPL)."""

from __future__ import annotations

import os
from pathlib import Path

from farm.sampling.role_samples import CPU_POWER_EXTRA
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

SYS_POWERCAP = Path("/sys/class/powercap")
_J_PER_UJ = 1e-6


def has_machine(watched: Watched) -> bool:
    """Whether all CPUs of the machine are the agent's, so that its energy is the rank's, too."""
    return len(watched.cpus) == os.cpu_count()


def create(watched: Watched) -> PowerMetric | None:
    """Return None without counters, as in VMs, without the right to read one, or beside others."""
    zones = zones_of(SYS_POWERCAP)
    try:
        for zone in zones:
            zone.read_uj()
    except (OSError, ValueError):
        return None
    return PowerMetric(zones) if zones and has_machine(watched) else None


class Zone:
    """A counter of microjoules, which begins at 0 again once it has reached its largest value."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wrapped_uj = 0
        self._previous_uj = 0

    def read_uj(self) -> int:
        """Return what was counted, together with all that was counted before it began again.

        It has to be read more often than it begins again, which takes a minute or more.
        """
        now_uj = int((self._folder / "energy_uj").read_text())
        if now_uj < self._previous_uj:
            self._wrapped_uj += int((self._folder / "max_energy_range_uj").read_text())
        self._previous_uj = now_uj
        return self._wrapped_uj + now_uj


class PowerMetric:
    def __init__(self, zones: list[Zone]) -> None:
        self._zones = zones
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the mean power over the second, of all processors and their memory."""
        counters = {str(number): zone.read_uj() for number, zone in enumerate(self._zones)}
        rates = [rate for rate in self._rates.update(tick, counters).values() if rate is not None]
        is_known = len(rates) == len(counters)
        return {CPU_POWER_EXTRA: sum(rates) * _J_PER_UJ if is_known else None}


def zones_of(powercap: Path) -> list[Zone]:
    """Return the counters of each processor, and of its memory where it has one beside.

    Others are parts of these, or count them once more: cores, graphics, the whole platform.
    """
    zones = []
    for folder in sorted(powercap.glob("intel-rapl:*")):  # AMD's, too
        try:
            name = (folder / "name").read_text().strip()
        except OSError:
            continue
        if name.startswith("package") or name == "dram":
            zones.append(Zone(folder))
    return zones
