"""What the kernel counts for the memory control group of a process, in version 2 and version 1.

Only read, never written. A hybrid system mounts both versions, of which one counts memory.
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
    """How one version calls what is asked for here."""

    kills: str  # a table in which `oom_kill` counts; of v2 with all groups below, of v1 without
    limit: str
    peak: str


_V2 = _Files(kills="memory.events", limit="memory.max", peak="memory.peak")
_V1 = _Files(
    kills="memory.oom_control", limit="memory.limit_in_bytes", peak="memory.max_usage_in_bytes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One group; every reading is None where the kernel does not tell."""

    folder: Path
    mount: Path  # the topmost group that is visible from here
    files: _Files

    @property
    def kill_count(self) -> int | None:
        """How many processes of this group were killed for want of memory, by whosever limit."""
        return read_counter(self.folder / self.files.kills, "oom_kill")

    def tightest_limit(self) -> tuple[int, int | None] | None:
        """Return the lowest limit of this group and those above it, and that group's peak."""
        limited = []
        for folder in self._upwards():
            limit_bytes = _number(folder / self.files.limit)
            if limit_bytes is not None and limit_bytes < _NO_LIMIT_BYTES:
                limited.append((limit_bytes, _number(folder / self.files.peak)))
        return min(limited, key=lambda pair: pair[0], default=None)

    def _upwards(self) -> Iterator[Path]:
        yield self.folder
        for folder in self.folder.parents:
            if not folder.is_relative_to(self.mount):
                return
            yield folder


def memory_group(pid: int, *, proc: Path = PROC) -> MemoryGroup | None:
    """Return the group whose kills are counted for `pid`; None where there is none.

    None, too, for version 2's root, which counts nothing.
    """
    paths = dict(_paths(proc / str(pid) / "cgroup"))
    for files, root, mount in _mounts(proc / "self" / "mountinfo"):
        path = paths.get(files.kills)
        if path is None:
            continue
        # A container without a namespace of its own for control groups sees its group's full path
        # but has only that group mounted.
        below = path.removeprefix(root) if root != "/" else path
        group = MemoryGroup(folder=mount / below.lstrip("/"), mount=mount, files=files)
        if group.kill_count is not None:
            return group
    return None


def machine_kill_count(*, proc: Path = PROC) -> int | None:
    """Return how many processes of the whole machine were killed for want of memory."""
    return read_counter(proc / "vmstat", "oom_kill")


def read_counter(file: Path, name: str) -> int | None:
    """Return the number behind `name` in a file of lines `NAME NUMBER`."""
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _paths(cgroup: Path) -> Iterator[tuple[str, str]]:
    """Yield the group's path in each hierarchy that may count memory, by its table of kills."""
    for line in _lines(cgroup):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            yield _V2.kills, path
        elif "memory" in controllers.split(","):
            yield _V1.kills, path


def _mounts(mountinfo: Path) -> Iterator[tuple[_Files, str, Path]]:
    """Yield (version, path of the group that is mounted, where), version 2 first."""
    found = []
    for line in _lines(mountinfo):
        before, _, after = line.partition(" - ")
        _, _, _, root, mount, *_ = before.split()
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.append((_V2, root, Path(mount)))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.append((_V1, root, Path(mount)))
    return iter(sorted(found, key=lambda one: one[0] is _V1))


def _number(file: Path) -> int | None:
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
