"""Reads limits and counters of control groups, in version 2 and version 1.

Nothing is written. A hybrid system mounts both versions, and only one of them counts memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Version 1 writes "no limit" as the largest whole page below 2**63.
_NO_LIMIT_BYTES = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The file names of one version."""

    kills: str  # a table in which `oom_kill` counts; of v2 with all groups below, of v1 without
    limit: str
    peak: str


_V2 = _Files(kills="memory.events", limit="memory.max", peak="memory.peak")
_V1 = _Files(
    kills="memory.oom_control", limit="memory.limit_in_bytes", peak="memory.max_usage_in_bytes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One group; a reading is None if the kernel does not report it."""

    folder: Path
    mount: Path  # the topmost group that is visible from here
    files: _Files

    @property
    def kill_count(self) -> int | None:
        """How many processes of this group were killed for lack of memory, by any group's limit."""
        return read_counter(self.folder / self.files.kills, "oom_kill")

    @property
    def limit_bytes(self) -> int | None:
        """The lowest limit of this group and those above it, in version 1 the unmounted too."""
        limits = [
            read_counter(self.folder / "memory.stat", "hierarchical_memory_limit"),
            *(_number(folder / self.files.limit) for folder in self._upwards()),
        ]
        return min((n for n in limits if n is not None and n < _NO_LIMIT_BYTES), default=None)

    def tightest_limit(self) -> tuple[int, int | None] | None:
        """Return the lowest limit of this group and those above it, and that group's peak."""
        limited = []
        for folder in self._upwards():
            limit_bytes = _number(folder / self.files.limit)
            if limit_bytes is not None and limit_bytes < _NO_LIMIT_BYTES:
                limited.append((limit_bytes, _number(folder / self.files.peak)))
        return min(limited, key=lambda pair: pair[0], default=None)

    def _upwards(self) -> Iterator[Path]:
        return _upwards(self.folder, self.mount)


def memory_group(pid: int, *, proc: Path = PROC) -> MemoryGroup | None:
    """Return the group whose kills are counted for `pid`; None: none, or only version 2's root."""
    counting = (group for group in _memory_groups(pid, proc=proc) if group.kill_count is not None)
    return next(counting, None)


def memory_limit_bytes(pid: int, *, proc: Path = PROC) -> int | None:
    """Return the memory limit of the groups of `pid`; None: no limit."""
    limits = [group.limit_bytes for group in _memory_groups(pid, proc=proc)]
    return min((limit for limit in limits if limit is not None), default=None)


def cpu_quota_cores(pid: int, *, proc: Path = PROC) -> float | None:
    """Return the CPU quota of the groups of `pid`, in cores; None: no quota."""
    quotas = []
    for _, folder, mount in _groups(pid, "cpu", proc=proc):
        for one in _upwards(folder, mount):
            words = " ".join(_lines(one / "cpu.max")).split()  # version 2: quota and period
            if not words:
                words = [
                    " ".join(_lines(one / name))
                    for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                ]
            if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
                quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _memory_groups(pid: int, *, proc: Path) -> Iterator[MemoryGroup]:
    for is_v2, folder, mount in _groups(pid, "memory", proc=proc):
        yield MemoryGroup(folder=folder, mount=mount, files=_V2 if is_v2 else _V1)


def _groups(pid: int, controller: str, *, proc: Path) -> Iterator[tuple[bool, Path, Path]]:
    """Yield (of version 2, the group's folder, the topmost that is visible), version 2 first."""
    paths = dict(_paths(proc / str(pid) / "cgroup", controller))
    for is_v2, root, mount in _mounts(proc / "self" / "mountinfo", controller):
        path = paths.get(is_v2)
        if path is None:
            continue
        # A container without a namespace of its own for control groups sees its group's full path
        # but has only that group mounted.
        below = path.removeprefix(root) if root != "/" else path
        yield is_v2, mount / below.lstrip("/"), mount


def machine_kill_count(*, proc: Path = PROC) -> int | None:
    """Return how many processes of the whole machine were killed for lack of memory."""
    return read_counter(proc / "vmstat", "oom_kill")


def read_counter(file: Path, name: str) -> int | None:
    """Return the number behind `name` in a file of lines `NAME NUMBER`."""
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _paths(cgroup: Path, controller: str) -> Iterator[tuple[bool, str]]:
    """Yield (of version 2, path) of the group in each hierarchy that may have the controller."""
    for line in _lines(cgroup):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            yield True, path
        elif controller in controllers.split(","):
            yield False, path


def _mounts(mountinfo: Path, controller: str) -> Iterator[tuple[bool, str, Path]]:
    """Yield (of version 2, path of the group that is mounted, where), version 2 first."""
    found = []
    for line in _lines(mountinfo):
        before, _, after = line.partition(" - ")
        _, _, _, root, mount, *_ = before.split()
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.append((True, root, Path(mount)))
        elif kind == "cgroup" and controller in options.split(","):
            found.append((False, root, Path(mount)))
    return iter(sorted(found, key=lambda one: not one[0]))


def _upwards(folder: Path, mount: Path) -> Iterator[Path]:
    yield folder
    for above in folder.parents:
        if not above.is_relative_to(mount):
            return
        yield above


def _number(file: Path) -> int | None:
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
