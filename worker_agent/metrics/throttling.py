"""Time for which a CPU quota stopped the agent's cores, as in containers and services."""

from __future__ import annotations

from pathlib import Path

from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.rates import Rates

SYS_CGROUP = Path("/sys/fs/cgroup")
# The key of the counter in cpu.stat, and nanoseconds in one of its units: version 2, version 1.
_COUNTERS = {"throttled_usec": 1_000, "throttled_time": 1}
_SECOND_NS = 1_000_000_000


def create(watched: Watched) -> ThrottlingMetric | None:
    """Follow the cgroups of the first trainer; None where no CPU controller counts for them."""
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

        The kernel adds up the time over all cores, and only once it lets a core go on, so that
        one second may seem to hold more than there is.
        """
        counters = {str(file): read_throttled_ns(file) for file in self._files}
        rates = self._rates.update(tick, {k: v for k, v in counters.items() if v is not None})
        known = [rate for rate in rates.values() if rate is not None]
        share = max(known) / _SECOND_NS / self._core_count if known else None
        return {"throttled_ratio": None if share is None else min(1.0, share)}


def stat_files(cgroups: str) -> list[Path]:
    """Return every cpu.stat that limits a process, from /proc/PID/cgroup: its own and above.

    In a container the path may be the host's, which is not there; then the container's own root
    is what there is.
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
    """Return the time for which a quota has held the group back; None where it is not counted."""
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in _COUNTERS:
            return int(value) * _COUNTERS[name]
    return None
