"""Find and end every process that an agent of this state directory ever started for a rank.

Trainers carry the directory's name in their environment, and hand it on to whatever they start,
so they are found even when they left their process group or outlived their agent. A template
carries it too, and its forks show the kernel the environment that it was started with.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Collection
from pathlib import Path

from farm.marked import MarkedProcesses, processes_marked

logger = logging.getLogger(__name__)

MARK = "BENCHFARM_AGENT_STATE"
_WARN_EVERY_S = 10.0


def find_marked(state_dir: Path) -> list[int]:
    """Return the pids of living processes that were started for an agent of this directory."""
    return processes_marked(MARK, str(state_dir))


def kill_marked(
    state_dir: Path, *, spare: Collection[int] = (), limit_s: float = float("inf")
) -> int:
    """Kill all marked processes but `spare`; return their number once the last is gone.

    A process in an uninterruptible wait dies only when that ends. As long as it lives the rank's
    cores and ports are not free, so without a limit this goes on, and complains now and then.
    """
    killed: set[int] = set()
    pause_s, begun = 0.005, time.monotonic()
    warned = begun
    with MarkedProcesses(MARK, str(state_dir), spare=spare) as marked:
        while pids := marked.living():
            marked.send(signal.SIGKILL)
            killed.update(pids)
            now = time.monotonic()
            if now - begun > limit_s:
                break
            if now - warned > _WARN_EVERY_S:
                warned = now
                logger.error("killed processes live on", extra={"pids": pids, "for_s": now - begun})
            marked.wait(pause_s)
            pause_s = min(2 * pause_s, 0.5)
    return len(killed)
