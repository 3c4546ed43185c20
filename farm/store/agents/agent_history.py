"""The ranks that one agent served, and how they ended. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.reports.late_reports import late_count
from farm.store.tables import AttemptRow, JobRow, RankRow, SpoolPosition, SweepRow


def ranks_of(
    session: Session, agent_id: str, *, before_token: int | None = None, limit: int
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the ranks an agent served, the latest first; `before_token` goes on from a page's.

    With the job and the attempt that each was of; `own_failure`: the kind of failure that this very
    rank ended with.
    """
    query = (
        select(
            RankRow.attempt_id.label("token"),
            AttemptRow.number.label("attempt_number"),
            JobRow.id.label("job_id"),
            JobRow.sweep_id,
            SweepRow.name.label("sweep_name"),
            JobRow.model,
            JobRow.dataset,
            JobRow.strategy,
            JobRow.agent_count,
            JobRow.global_batch_size,
            RankRow.rank,
            AttemptRow.state,
            AttemptRow.leased_at,
            AttemptRow.ended_at,
            AttemptRow.reason,
            # Read in the database: beside it stands the last part of the trainer's log.
            RankRow.ended["failure", "kind"].as_string().label("own_failure"),
            RankRow.disturbed_by,
            RankRow.control_s,
        )
        .join(AttemptRow, AttemptRow.id == RankRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .where(RankRow.agent_id == agent_id)
        .order_by(RankRow.attempt_id.desc(), RankRow.rank)
        .limit(limit)
    )
    if before_token is not None:
        query = query.where(RankRow.attempt_id < before_token)
    return session.execute(query).all()


def outcome_counts(session: Session, agent_id: str, *, limit: int) -> dict[AttemptState, int]:
    """Count how the last attempts of an agent ended; those under way are among them."""
    last = (
        select(RankRow.attempt_id)
        .where(RankRow.agent_id == agent_id)
        .order_by(RankRow.attempt_id.desc())
        .limit(limit)
        .subquery()
    )
    rows = session.execute(
        select(AttemptRow.state, func.count())
        .join(last, last.c.attempt_id == AttemptRow.id)
        .group_by(AttemptRow.state)
    )
    found = {state: count for state, count in rows}
    return {state: found[state] for state in AttemptState if state in found}


def late_report_count_of(session: Session, agent_id: str) -> int:
    """Count the reports of an agent that did not count."""
    return late_count(session, agent_id=agent_id)


def spool_position(session: Session, agent_id: str) -> SpoolPosition | None:
    """Return how far the reports of the agent's present spool are stored; None: there were none."""
    return session.scalar(
        select(SpoolPosition)
        .where(SpoolPosition.agent_id == agent_id)
        .order_by(SpoolPosition.updated_at.desc())
        .limit(1)
    )
