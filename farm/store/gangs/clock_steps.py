"""Corrects stored times after the server's clock was set.

No time of a running attempt may be in the future, or the attempt would wait until the clock reaches
it. The correction is idempotent, so several schedulers may make it.
"""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.gang.retries import RetryPolicy, is_pausing
from farm.store.engine import IDS_A_QUERY
from farm.store.queue.waiting import IS_WAITING
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow


def follow_clock(
    session: Session,
    *,
    now: dt.datetime,
    step_s: float,
    lease: dt.timedelta,
    policy: RetryPolicy,
) -> None:
    """Correct jobs, leases and attempts after the clock was set by some seconds; 0: not known.

    Every lease that would seem expired, or that would end too late, starts again at `now`: a live
    agent renews it, and a dead one loses it after one lease.
    """
    _follow_agents(session, now=now, is_forward=step_s > 0, lease=lease)
    future = select(JobRow.id, JobRow.due_at, JobRow.attempt_count).where(
        IS_WAITING, JobRow.due_at > now
    )
    due_ids = [
        job_id
        for job_id, due_at, attempt_count in session.execute(future)
        if not is_pausing(due_at, now=now, attempt_count=attempt_count, policy=policy)
    ]
    for begin in range(0, len(due_ids), IDS_A_QUERY):
        _set(session, JobRow.due_at, now, JobRow.id.in_(due_ids[begin : begin + IDS_A_QUERY]))
    is_active = AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES)
    if step_s > 0:
        step = dt.timedelta(seconds=step_s)
        for token, since in session.execute(
            select(AttemptRow.id, AttemptRow.state_since).where(is_active)
        ):
            _set(session, AttemptRow.state_since, since + step, AttemptRow.id == token)
    _set_back(session, AttemptRow.state_since, now, is_active)
    _set_back(session, AttemptRow.started_at, now, is_active)
    is_of_active = RankRow.attempt_id.in_(select(AttemptRow.id).where(is_active))
    _set_back(session, RankRow.commanded_at, now, is_of_active)
    _set_back(session, RankRow.ended_at, now, is_of_active)


def _follow_agents(
    session: Session, *, now: dt.datetime, is_forward: bool, lease: dt.timedelta
) -> None:
    # In the order in which heartbeats lock them.
    session.execute(select(AgentRow.id).order_by(AgentRow.id).with_for_update()).all()
    _set_back(session, AgentRow.heartbeat_at, now)
    _set_back(session, AgentRow.stop_sent_at, now)
    is_leased = AgentRow.attempt_id.is_not(None)
    _set(
        session,
        AgentRow.lease_expires_at,
        now + lease,
        is_leased,
        AgentRow.lease_expires_at > now + lease,
    )
    if is_forward:
        _set(
            session,
            AgentRow.lease_expires_at,
            now + lease,
            is_leased,
            AgentRow.lease_expires_at <= now,
        )


def _set_back(
    session: Session,
    column: InstrumentedAttribute[dt.datetime] | InstrumentedAttribute[dt.datetime | None],
    now: dt.datetime,
    *conditions: ColumnElement[bool],
) -> None:
    _set(session, column, now, column > now, *conditions)


def _set(
    session: Session,
    column: InstrumentedAttribute[dt.datetime] | InstrumentedAttribute[dt.datetime | None],
    value: dt.datetime,
    *conditions: ColumnElement[bool],
) -> None:
    statement = update(column.class_).where(*conditions).values({column: value})
    session.execute(statement.execution_options(synchronize_session=False))
