"""Agents as a sorted and paged table. Reads only."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.store.tables import AgentRow


class AgentOrder(enum.Enum):
    """What comes first; by name where there is nothing to tell."""

    NAME = "name"
    WORK = "work"  # those that are leased, by their attempts
    HEARTBEAT = "heartbeat"  # those that are silent for longest
    CLOCK = "clock"  # those whose clocks are most off


def agent_page(
    session: Session,
    order: AgentOrder,
    *,
    live_since: dt.datetime,
    offset: int = 0,
    limit: int,
) -> Sequence[AgentRow]:
    """Return agents in an order. Those without a heartbeat since then come last.

    But for that of heartbeats, where they are what one looks for.
    """
    is_silent = case((AgentRow.heartbeat_at >= live_since, 0), else_=1)
    first: dict[AgentOrder, tuple[ColumnElement[Any], ...]] = {
        AgentOrder.NAME: (is_silent,),
        AgentOrder.WORK: (is_silent, AgentRow.attempt_id.nulls_last()),
        AgentOrder.HEARTBEAT: (AgentRow.heartbeat_at.nulls_first(),),
        AgentOrder.CLOCK: (is_silent, func.abs(AgentRow.clock_offset_s).desc().nulls_last()),
    }
    query = select(AgentRow).order_by(*first[order], AgentRow.id).offset(offset).limit(limit)
    return session.scalars(query).all()


def agent_count(session: Session) -> int:
    """Count the agents, those long gone too."""
    return session.scalar(select(func.count()).select_from(AgentRow)) or 0


def find_agent(session: Session, agent_id: str) -> AgentRow:
    """Return one agent.

    Raises:
        NotFound: there is no such agent.
    """
    agent = session.get(AgentRow, agent_id)
    if agent is None:
        raise NotFound(f"agent {agent_id!r}: there is none; `farm agents` lists them")
    return agent


def agents_of_machine(session: Session, machine_id: str, *, limit: int) -> Sequence[str]:
    """Return the ids of the agents on a machine."""
    query = (
        select(AgentRow.id)
        .where(AgentRow.machine_id == machine_id)
        .order_by(AgentRow.id)
        .limit(limit)
    )
    return session.scalars(query).all()
