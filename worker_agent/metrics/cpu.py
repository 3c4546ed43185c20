"""Samples the agent's CPU cores: load, frequency, and throttling by heat or by a quota."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from farm.measuring.noise import INTERRUPT_EXTRA, THERMAL_EXTRA
from farm.sampling.ticks import Rates
from worker_agent.metrics.contracts import Watched

PROC_STAT = Path("/proc/stat")
SYS_CPU = Path("/sys/devices/system/cpu")
SYS_CGROUP = Path("/sys/fs/cgroup")
# Asking a core may wake it, and costs tens of microseconds; a few stand for all of them.
_MOST_CORES = 4
_HZ_PER_KHZ = 1000
# A package's heat concerns all its cores, and a file a core would be dear on machines with many.
_MOST_HEAT_FILES = 8
# The key of the counter in cpu.stat, and nanoseconds in one of its units: version 2, version 1.
_THROTTLED_NS = {"throttled_usec": 1_000, "throttled_time": 1}
_SECOND_NS = 1_000_000_000


def create_load(watched: Watched) -> CpuMetric | None:
    return CpuMetric(watched.cpus)


class CpuMetric:
    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = frozenset(cpus)
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Read /proc/stat: shares of the time that the kernel itself accounted for."""
        rates = self._rates.update(tick, parse_stat(PROC_STAT.read_text(), self._cpus))
        return {
            "machine_cpu_ratio": _share(rates["busy"], rates["total"]),
            "machine_steal_ratio": _share(rates["steal"], rates["total"]),
            INTERRUPT_EXTRA: _share(rates["interrupt"], rates["total"]),
        }


def parse_stat(text: str, cpus: Collection[int]) -> dict[str, int]:
    """Sum the clock ticks of `cpus` since boot: busy, in interrupts, stolen, and all of them."""
    busy = interrupt = steal = total = 0
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if not (name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus):
            continue
        # user nice system idle iowait irq softirq steal; what follows is contained in user.
        fields = [int(field) for field in rest.split()[:8]]
        total += sum(fields)
        steal += fields[7]
        interrupt += fields[5] + fields[6]
        busy += sum(fields) - fields[3] - fields[4] - fields[7]
    return {"busy": busy, "interrupt": interrupt, "steal": steal, "total": total}


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def create_frequency(watched: Watched) -> FrequencyMetric | None:
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
        return {"cpu_frequency_hz": sum(khz) / len(khz) * _HZ_PER_KHZ}


def create_thermal(watched: Watched) -> ThermalMetric | None:
    """Return None if the processor does not report throttling, as in most VMs."""
    files = [
        file
        for cpu in watched.cpus
        for file in sorted((SYS_CPU / f"cpu{cpu}" / "thermal_throttle").glob("*_throttle_count"))
    ]
    return ThermalMetric(files[:_MOST_HEAT_FILES]) if files else None


class ThermalMetric:
    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the rate of the fastest growing file, since each core counts the same event."""
        counters = {str(file): int(file.read_text()) for file in self._files}
        known = [r for r in self._rates.update(tick, counters).values() if r is not None]
        return {THERMAL_EXTRA: max(known, default=None)}


def create_throttling(watched: Watched) -> ThrottlingMetric | None:
    """Follow the cgroups of the first trainer; None if they have no CPU controller."""
    pid = watched.pids[0] if watched.pids else "self"
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    files = [file for file in stat_files(text) if read_throttled_ns(file) is not None]
    return ThrottlingMetric(files, core_count=len(watched.cpus)) if files else None


class ThrottlingMetric:
    def __init__(self, files: list[Path], *, core_count: int) -> None:
        self._files = files
        self._core_count = core_count
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the share of the cores' time; the largest where several quotas are nested.

        The kernel adds up the time over all cores, when a core continues. So the time of one second
        may be larger than possible.
        """
        counters = {str(file): read_throttled_ns(file) for file in self._files}
        rates = self._rates.update(tick, {k: v for k, v in counters.items() if v is not None})
        known = [rate for rate in rates.values() if rate is not None]
        share = max(known) / _SECOND_NS / self._core_count if known else None
        return {"throttled_ratio": None if share is None else min(1.0, share)}


def stat_files(cgroups: str) -> list[Path]:
    """Return every cpu.stat that applies to a process: its own group's and those above.

    In a container the path may be the host's and not exist; then the container's own root is used.
    """
    files: list[Path] = []
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = SYS_CGROUP / "cpu" if controllers else SYS_CGROUP
        folder = root / path.lstrip("/")
        folders = [folder, *folder.parents] if folder.is_dir() else [root]
        files += [f / "cpu.stat" for f in folders if f.is_relative_to(root)]
    return [file for file in files if file.is_file()]


def read_throttled_ns(file: Path) -> int | None:
    """Return how long a quota has throttled the group; None if it is not counted."""
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in _THROTTLED_NS:
            return int(value) * _THROTTLED_NS[name]
    return None
