"""Agents as people and the scheduler see them; only `heartbeats` and `leases` write the rest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from farm.core.agents import AgentState
from farm.core.views import LiveAgent
from farm.errors import NotFound
from farm.store.tables import Agent


def list_agents(
    session: Session, *, after_id: str | None = None, limit: int = 1000
) -> Sequence[Agent]:
    """Return agents by id, those long gone too; `after_id` goes on from a page's last."""
    query = select(Agent).order_by(Agent.id).limit(limit)
    if after_id is not None:
        query = query.where(Agent.id > after_id)
    return session.scalars(query).all()


def live_agents(session: Session, *, now: dt.datetime, live_within_s: float) -> list[LiveAgent]:
    """Return the agents whose last fresh heartbeat is that recent, by id.

    An agent that fell silent under a lease is among them until the lease is taken from it: its
    cores are not free yet. One that is silent and merely unclean is not: its machine may never
    come back, and the agent that took its place shall work.
    """
    fresh_since = now - dt.timedelta(seconds=live_within_s)
    agents = session.scalars(
        select(Agent)
        .where(or_(Agent.heartbeat_at >= fresh_since, Agent.attempt_id.is_not(None)))
        .order_by(Agent.id)
    )
    return [_live(agent) for agent in agents]


def set_drained(session: Session, agent_id: str, *, is_drained: bool) -> None:
    """Let an agent finish what it does and take nothing new, or let it take ranks again.

    Raises:
        NotFound: there is no such agent.
    """
    agent = session.get(Agent, agent_id, with_for_update=True)
    if agent is None:
        raise NotFound(f"agent {agent_id!r}: there is none; `farm agents` lists them")
    agent.is_drained = is_drained
    session.flush()


def _live(agent: Agent) -> LiveAgent:
    is_occupying = agent.attempt_id is not None or agent.unclean_token is not None
    takes_ranks = agent.state is AgentState.IDLE and not agent.is_drained
    return LiveAgent(
        agent_id=agent.id,
        machine_id=agent.machine_id,
        cpus=frozenset(agent.facts["cpus"]),
        capabilities=frozenset(agent.facts["capabilities"]),
        labels=frozenset(agent.facts["labels"].items()),
        fingerprint=agent.fingerprint,
        framework_version=agent.facts["hardware"]["tensorflow_version"],
        is_idle=takes_ranks and not is_occupying,
        is_occupying=is_occupying,
    )
