"""A real memory control group with a limit, for tests that run out of memory. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


class LimitedGroup:
    """Whatever is moved into it, and whatever that starts, shares one limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, pid: int) -> None:
        """Move a process into the group; what it has allocated stays with its former one."""
        (self.folder / "cgroup.procs").write_text(str(pid))


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[LimitedGroup]:
    """Make a group for the length of a block; skip the test where that is not possible.

    Every process in it must have ended by then.
    """
    is_v1 = (_V1 / "memory.limit_in_bytes").exists()
    folder = (_V1 if is_v1 else _V2) / f"benchfarm-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if is_v1 else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    try:
        if not limit.exists():
            pytest.skip("control groups do not count memory here")
        limit.write_text(str(limit_bytes))
        swap = folder / ("memory.memsw.limit_in_bytes" if is_v1 else "memory.swap.max")
        if swap.exists():  # or it would swap instead of being killed
            swap.write_text(str(limit_bytes) if is_v1 else "0")
        yield LimitedGroup(folder)
    finally:
        folder.rmdir()
