"""One word for how an agent is, from what it said last and when."""

from __future__ import annotations

import datetime as dt
import enum

from farm.core.agents import AgentState
from farm.store.tables import Agent


class AgentStatus(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"
    CLEANING_UP = "cleaning up"  # its attempt is over, and it has not yet confirmed its end
    SPOOL_FULL = "spool full"
    DRAINED = "drained"  # idle, but takes nothing new
    LEAVING = "leaving"
    LOST = "lost"  # no heartbeat for a lease


def is_live(agent: Agent, *, now: dt.datetime, lease_s: float) -> bool:
    """Tell whether the agent's heartbeats arrive."""
    beat_at = agent.heartbeat_at
    return beat_at is not None and now - beat_at <= dt.timedelta(seconds=lease_s)


def agent_status(agent: Agent, *, now: dt.datetime, lease_s: float) -> AgentStatus:
    """Return the most important thing to know of the agent."""
    if not is_live(agent, now=now, lease_s=lease_s):
        return AgentStatus.LOST
    if agent.state is AgentState.LEAVING:
        return AgentStatus.LEAVING
    if agent.state is AgentState.SPOOL_FULL:
        return AgentStatus.SPOOL_FULL
    if agent.attempt_id is not None:
        return AgentStatus.BUSY
    if agent.unclean_token is not None or agent.state is AgentState.BUSY:
        return AgentStatus.CLEANING_UP
    return AgentStatus.DRAINED if agent.is_drained else AgentStatus.IDLE
