"""Find and end what an embedded farm has left behind, however its processes were orphaned.

Every process of a farm inherits a mark in its environment, and so do their children, whatever
session or parent they move to: unlike a pid file the mark cannot name a stranger.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from farm.errors import FarmError

MARK = "BENCHFARM_EMBEDDED"
_POLL_S = 0.05
_KILLED_WITHIN_S = 5.0


def find_marked(mark: str) -> list[int]:
    """Return the ids of this user's living processes that carry the mark, but not our own."""
    wanted = f"{MARK}={mark}".encode()
    own, found = os.getpid(), []
    for folder in Path("/proc").glob("[0-9]*"):
        # Processes come and go, and those of others are not readable.
        with contextlib.suppress(OSError):
            environ = (folder / "environ").read_bytes().split(b"\0")
            if wanted in environ and int(folder.name) != own and not _is_zombie(folder):
                found.append(int(folder.name))
    return found


def end_marked(mark: str, *, grace_s: float) -> int:
    """End all processes that carry the mark: SIGTERM, then SIGKILL. Return how many there were.

    Raises:
        FarmError: one survived even that.
    """
    found = find_marked(mark)
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
        deadline = time.monotonic() + wait_s
        _signal_all(find_marked(mark), number)
        while left := find_marked(mark):
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        else:
            return len(found)
    raise FarmError(f"processes {', '.join(map(str, left))} cannot be ended; restart the machine")


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_zombie(folder: Path) -> bool:
    # The name in parentheses may itself hold spaces and parentheses.
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
