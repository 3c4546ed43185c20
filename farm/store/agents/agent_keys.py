"""Keys of agents in the store: add, replace, revoke, read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec, NotFound
from farm.messages.agent_keys import KeyRecord
from farm.messages.agents import check_agent_id
from farm.store.tables import AgentKeyRow, AgentRow, LateReport, SpoolPosition


def add_agent_key(session: Session, agent_id: str, *, now: dt.datetime) -> KeyRecord:
    """Give an agent a key that is valid from now on; a removed agent is admitted again.

    Keys from before a removal never become valid again.

    Raises:
        InvalidSpec: the name is invalid, or the agent has a valid key.
    """
    row = _locked(session, check_agent_id(agent_id))
    if row is None:
        row = AgentKeyRow(agent_id=agent_id, number=1, made_at=now)
        session.add(row)
    elif row.revoked_at is None:
        expected = "a new agent; for another key there is `farm agent rotate`"
        raise InvalidSpec("NAME", agent_id, expected)
    else:
        row.number, row.made_at = row.number + 1, now
        row.previous_until = row.revoked_at = None
    agent = session.get(AgentRow, agent_id, with_for_update=True)
    if agent is not None and agent.is_removed:
        agent.is_removed = agent.is_drained = False
    session.flush()
    return _record(row)


def rotate_agent_key(
    session: Session, agent_id: str, *, now: dt.datetime, grace: dt.timedelta
) -> KeyRecord:
    """Give an agent another key; its present one is valid until the grace time is over.

    Raises:
        NotFound: it has no valid key.
    """
    row = _locked(session, agent_id)
    if row is None or row.revoked_at is not None:
        raise _none(agent_id)
    row.number, row.made_at = row.number + 1, now
    row.previous_until = now + grace if grace else None
    session.flush()
    return _record(row)


def remove_agent(session: Session, agent_id: str, *, now: dt.datetime) -> None:
    """Revoke an agent's keys, so its messages are refused, and end its lease.

    The scheduler then ends the attempt and frees the gang, as after every expired lease. Its stored
    rejected reports are deleted at once: a stolen agent may have sent many.

    Raises:
        NotFound: there is neither a key nor an agent of that name.
    """
    row = _locked(session, agent_id)
    agent = session.get(AgentRow, agent_id, with_for_update=True)
    if row is None and agent is None:
        raise _none(agent_id)
    if row is not None and row.revoked_at is None:
        row.revoked_at, row.previous_until = now, None
    if agent is not None:
        agent.is_removed = agent.is_drained = True
        if agent.lease_expires_at is not None:
            agent.lease_expires_at = min(agent.lease_expires_at, now)
    for table in (LateReport, SpoolPosition):
        session.execute(delete(table).where(table.agent_id == agent_id))
    session.flush()


def list_agent_keys(session: Session) -> Sequence[AgentKeyRow]:
    """Return the records of all agents' keys, by agent, including revoked ones."""
    return session.scalars(select(AgentKeyRow).order_by(AgentKeyRow.agent_id)).all()


def key_records(session: Session, *, with_removed: bool = False) -> dict[str, KeyRecord]:
    """Return the valid keys, by agent. A removed agent is left out unless `with_removed`."""
    rows = select(AgentKeyRow)
    if not with_removed:
        rows = rows.where(AgentKeyRow.revoked_at.is_(None))
    return {row.agent_id: _record(row) for row in session.scalars(rows)}


def keyed_agents(session: Session) -> list[str]:
    """Return the names of agents that have or had a key; one that was removed may still send."""
    return list(session.scalars(select(AgentKeyRow.agent_id).order_by(AgentKeyRow.agent_id)))


def _locked(session: Session, agent_id: str) -> AgentKeyRow | None:
    return session.get(AgentKeyRow, agent_id, with_for_update=True)


def _record(row: AgentKeyRow) -> KeyRecord:
    return KeyRecord(
        agent_id=row.agent_id,
        number=row.number,
        previous_until=row.previous_until,
        revoked_at=row.revoked_at,
    )


def _none(agent_id: str) -> NotFound:
    return NotFound(f"agent {agent_id!r} has no key: `farm agent list` shows who has one")
