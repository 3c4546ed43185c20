"""Clock frequency of the agent's cores, where the kernel reports it."""

from __future__ import annotations

from pathlib import Path

from worker_agent.metrics.contracts import Watched

SYS_CPU = Path("/sys/devices/system/cpu")
# Asking a core may wake it, and costs tens of microseconds; a few stand for all of them.
_MOST_CORES = 4
_KHZ = 1000


def create(watched: Watched) -> FrequencyMetric | None:
    """Return None without cpufreq, as in most VMs."""
    files = [SYS_CPU / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq" for cpu in watched.cpus]
    present = [file for file in files if file.exists()]
    return FrequencyMetric(present[:_MOST_CORES]) if present else None


class FrequencyMetric:
    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the mean over up to four of the cores, in Hz, at this instant."""
        khz = [int(file.read_text()) for file in self._files]
        return {"cpu_frequency_hz": sum(khz) / len(khz) * _KHZ}
