"""Finds and ends every process that an agent of this state directory ever started for a rank.

Processes of the running agent are its descendants, in sessions of their own. Processes of an agent
that crashed are found by a mark: the directory's name is in the environment of every trainer, and
all processes that a trainer starts inherit it. A template has the mark too, and the kernel shows
the template's environment for its forks.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

from farm.processes.marked import MarkedProcesses, processes_marked
from worker_agent.config import AgentConfig
from worker_agent.trainer_process.child import kill_other_sessions
from worker_agent.trainer_process.environment import AGENT_MARK
from worker_agent.trainer_process.template import TemplateProcess

logger = logging.getLogger(__name__)

_WARN_EVERY_S = 10.0


def find_marked(state_dir: Path) -> list[int]:
    """Return the pids of living processes that were started for an agent of this directory."""
    return processes_marked(AGENT_MARK, str(state_dir))


def kill_leftovers(
    config: AgentConfig,
    *,
    template: TemplateProcess | None = None,
    kill_known: Callable[[], None] = lambda: None,
    limit_s: float = float("inf"),
) -> int:
    """Kill all of them but a living template; return their number once the last is gone.

    `kill_known` ends those that one knows, once all have been found: one that ends shows no mark
    any more, and may take long to end.

    A process in an uninterruptible wait dies only when that ends. As long as it lives the rank's
    cores and ports are not free, so without a limit this goes on, and complains now and then.
    """
    killed: set[int] = set()
    pause_s, begun = 0.005, time.monotonic()
    warned = begun

    def spared() -> tuple[int, ...]:
        # The number of one that has been reaped may be another's by now.
        return () if template is None or not template.is_alive else (template.pid,)

    folder, owner = str(config.settings.state_dir), config.trainer_uid
    with MarkedProcesses(AGENT_MARK, folder, owner=owner, spare=spared) as marked:
        try:
            marked.look(signal.SIGKILL)
            killed.update(marked.pids)
        finally:
            kill_known()
        while True:
            may_be_left = marked.look(signal.SIGKILL)
            left = {*marked.pids, *kill_other_sessions(spare=spared())}
            if not may_be_left and not left:
                break
            killed |= left
            now = time.monotonic()
            if now - begun > limit_s:
                break
            if now - warned > _WARN_EVERY_S:
                warned = now
                extra = {"pids": sorted(left), "for_s": now - begun}
                logger.error("killed processes live on", extra=extra)
            if may_be_left:
                marked.wait(pause_s)
            else:
                time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)
    return len(killed)
