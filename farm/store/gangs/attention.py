"""Finds the active attempts that a scheduler round has to decide on.

Most of them train, and need no decision.
"""

from __future__ import annotations

import datetime as dt

from sqlalchemy import and_, bindparam, exists, or_, select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState, RankPhase
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow

# Whether a rank of an attempt has ended or has lost its lease: looked up by the keys of the few
# attempts that are active, since those that are over become ever more.
_LACKS_RANK = (
    exists()
    .where(
        RankRow.attempt_id == AttemptRow.id,
        AgentRow.id == RankRow.agent_id,
        or_(
            RankRow.phase == RankPhase.ENDED,
            AgentRow.attempt_id.is_(None),
            AgentRow.attempt_id != RankRow.attempt_id,
            AgentRow.lease_expires_at.is_(None),
            AgentRow.lease_expires_at <= bindparam("now"),
        ),
    )
    .correlate(AttemptRow)
)


def attempts_to_decide(session: Session, *, now: dt.datetime, end_s: float) -> list[int]:
    """Return the tokens of the active attempts that are not simply at work, oldest first.

    At work is one that runs, all of whose ranks keep their leases and have not ended, that nobody
    cancels, and that is not `end_s` beyond its time limit: the rendezvous would say "wait". Nothing
    is locked, and little is read: a farm of a thousand agents has hundreds of them, and to lock
    them for as long as it takes to read everything kept the collector waiting for most of its time.
    """
    rows = session.execute(
        select(
            AttemptRow.id,
            AttemptRow.state,
            AttemptRow.state_since,
            JobRow.cancel_requested,
            JobRow.spec["time_limit_s"].label("limit_s"),
            and_(AttemptRow.state == AttemptState.RUNNING, _LACKS_RANK).label("lacks_rank"),
        )
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
        .order_by(AttemptRow.id),
        {"now": now},
    ).all()
    return [
        row.id
        for row in rows
        if row.state is not AttemptState.RUNNING
        or row.cancel_requested
        or row.lacks_rank
        or not _is_within(row.limit_s, age_s=(now - row.state_since).total_seconds() - end_s)
    ]


def _is_within(limit_s: object, *, age_s: float) -> bool:
    """Whether the limit is not passed yet. What is no number is for the whole look to refuse."""
    return isinstance(limit_s, int | float) and age_s < limit_s
