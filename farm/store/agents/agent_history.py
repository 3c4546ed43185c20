"""What one agent has done: the ranks it served and how they ended. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.reports.late_reports import late_count
from farm.store.tables import AttemptRow, JobRow, RankRow, SpoolPosition, SweepRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOfAgent:
    """A rank that an agent served, with the job and the attempt that it was of.

    `own_failure`: the kind of failure that this very rank ended with.
    """

    token: int
    attempt_number: int
    job_id: int
    sweep_id: int
    sweep_name: str
    model: str
    dataset: str
    strategy: str
    world_size: int
    global_batch_size: int
    rank: int
    state: AttemptState
    leased_at: dt.datetime
    ended_at: dt.datetime | None
    reason: str | None
    own_failure: str | None
    disturbed_by: str | None
    control_s: float | None

    @property
    def duration_s(self) -> float | None:
        """From the lease to the end of the attempt; None while it goes on."""
        return None if self.ended_at is None else (self.ended_at - self.leased_at).total_seconds()


def ranks_of(
    session: Session, agent_id: str, *, before_token: int | None = None, limit: int
) -> list[RankOfAgent]:
    """Return the ranks an agent served, the latest first; `before_token` goes on from a page's."""
    query = (
        select(
            RankRow.attempt_id,
            AttemptRow.number,
            JobRow.id,
            JobRow.sweep_id,
            SweepRow.name,
            JobRow.model,
            JobRow.dataset,
            JobRow.strategy,
            JobRow.world_size,
            JobRow.global_batch_size,
            RankRow.rank,
            AttemptRow.state,
            AttemptRow.leased_at,
            AttemptRow.ended_at,
            AttemptRow.reason,
            # Read in the database: beside it stands the last part of the trainer's log.
            RankRow.ended["failure", "kind"].as_string(),
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
    return [
        RankOfAgent(
            token=row[0],
            attempt_number=row[1],
            job_id=row[2],
            sweep_id=row[3],
            sweep_name=row[4],
            model=row[5],
            dataset=row[6],
            strategy=row[7],
            world_size=row[8],
            global_batch_size=row[9],
            rank=row[10],
            state=row[11],
            leased_at=row[12],
            ended_at=row[13],
            reason=row[14],
            own_failure=row[15],
            disturbed_by=row[16],
            control_s=row[17],
        )
        for row in session.execute(query)
    ]


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
