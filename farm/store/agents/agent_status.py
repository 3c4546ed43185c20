"""Whether an agent is there, and what it does, in one word for commands, pages and metrics."""

from __future__ import annotations

import datetime as dt
import enum

from farm.messages.agents import AgentState
from farm.store.tables import AgentRow


class AgentStatus(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"
    CLEANING_UP = "cleaning up"  # its attempt is over, and it has not yet confirmed its end
    SPOOL_FULL = "spool full"
    DRAINED = "drained"  # idle, but takes nothing new
    LEAVING = "leaving"  # told to stop
    STOPPED = "stopped"  # told to stop, and no heartbeat for a lease
    LOST = "lost"  # no heartbeat for a lease
    REMOVED = "removed"  # its key was removed


def is_live(agent: AgentRow, *, now: dt.datetime, lease_s: float) -> bool:
    """Tell whether the agent's heartbeats arrive."""
    beat_at = agent.heartbeat_at
    return beat_at is not None and now - beat_at <= dt.timedelta(seconds=lease_s)


def is_alive(agent: AgentRow, *, now: dt.datetime, lease_s: float) -> bool:
    """Tell whether its heartbeats arrive, and the last did not say that it was told to stop."""
    return agent.state is not AgentState.LEAVING and is_live(agent, now=now, lease_s=lease_s)


def agent_status(agent: AgentRow, *, now: dt.datetime, lease_s: float) -> AgentStatus:
    """Return the most important thing to know of the agent."""
    is_leaving = agent.state is AgentState.LEAVING
    if agent.is_removed:
        return AgentStatus.REMOVED
    if not is_live(agent, now=now, lease_s=lease_s):
        return AgentStatus.STOPPED if is_leaving else AgentStatus.LOST
    if is_leaving:
        return AgentStatus.LEAVING
    if agent.state is AgentState.SPOOL_FULL:
        return AgentStatus.SPOOL_FULL
    if agent.attempt_id is not None:
        return AgentStatus.BUSY
    if agent.unclean_token is not None or agent.state is AgentState.BUSY:
        return AgentStatus.CLEANING_UP
    return AgentStatus.DRAINED if agent.is_drained else AgentStatus.IDLE
