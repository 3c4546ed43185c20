"""Find and end what an embedded farm has left behind, however its processes were orphaned.

Every process of a farm inherits a mark in its environment, and so do their children, whatever
session or parent they move to.
"""

from __future__ import annotations

import signal
import time

from farm.errors import FarmError
from farm.processes.marked import MarkedProcesses, processes_marked

MARK = "BENCHFARM_EMBEDDED"
_POLL_S = 0.05
_KILLED_WITHIN_S = 5.0


def find_marked(home: str) -> list[int]:
    """Return the pids of living processes that were started for a farm of this folder."""
    return processes_marked(MARK, home)


def end_marked(home: str, *, grace_s: float) -> int:
    """End all processes of a farm's folder: SIGTERM, then SIGKILL. Return how many there were.

    Raises:
        FarmError: one survived even that.
    """
    found: set[int] = set()
    with MarkedProcesses(MARK, home) as marked:
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
            deadline = time.monotonic() + wait_s
            while marked.look(number):
                found.update(marked.pids)
                if time.monotonic() >= deadline:
                    break
                marked.wait(_POLL_S)
        if left := marked.pids:
            pids = ", ".join(map(str, left))
            raise FarmError(f"processes {pids} cannot be ended; restart the machine")
    return len(found)
