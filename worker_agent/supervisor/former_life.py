"""Clean up after an earlier life of this agent that ended without doing so."""

from __future__ import annotations

import logging

from farm.messages.trainer_lines import Failure, FailureKind
from worker_agent.config import AgentConfig
from worker_agent.network.shaping import undo_former
from worker_agent.spool.journal import Journal, ServedRank
from worker_agent.trainer_process.leftovers import kill_leftovers

logger = logging.getLogger(__name__)


def clean_up(config: AgentConfig, served: ServedRank, journal: Journal) -> None:
    """Kill its processes, undo its network profile, report the end of the rank it served."""
    unfinished = served.read()
    ids = dict(zip(("attempt_id", "rank", "job_id"), unfinished or (), strict=False))
    killed = kill_leftovers(config)
    if killed:
        logger.warning("processes of an earlier life were killed: %d", killed, extra=ids)
    undo_former(config.site)
    if unfinished is None:
        return
    token, rank, _ = unfinished
    message = "the agent ended while it served this rank, and was started again"
    logger.warning("rank was lost: %s", message, extra=ids)
    failure = Failure(kind=FailureKind.AGENT_LOST, message=message)
    journal.add_lost(token, rank=rank, failure=failure)
    served.forget()
