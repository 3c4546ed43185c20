"""What the dashboard sums up over the whole store. Reading only; one query each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from farm.core.lifecycle import FINAL_JOB_STATES, JobState
from farm.core.progress import UnfinishedJob
from farm.store.repetitions import BY_CELL
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Agent, Attempt, Job, LateReport, Rank


@dataclass(frozen=True, slots=True)
class ServedRank:
    """What an agent is leased for."""

    agent_id: str
    job_id: int
    rank: int


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A job of a sweep and what came out of it; None: nothing yet."""

    job: Job
    measurement: MeasurementRow | None


def job_counts(session: Session) -> dict[JobState, int]:
    """Count all jobs by state, those states without a job too."""
    rows = session.execute(select(Job.state, func.count()).group_by(Job.state))
    return dict.fromkeys(JobState, 0) | {state: count for state, count in rows}


def late_report_count(session: Session) -> int:
    """Count the reports that were kept aside."""
    return session.scalar(select(func.count()).select_from(LateReport)) or 0


def served_ranks(session: Session, agent_ids: Collection[str]) -> dict[str, ServedRank]:
    """Return by id what each of the agents is leased for; the idle ones are not there."""
    rows = session.execute(
        select(Agent.id, Attempt.job_id, Rank.rank)
        .join(Attempt, Attempt.id == Agent.attempt_id)
        .join(Rank, and_(Rank.attempt_id == Agent.attempt_id, Rank.agent_id == Agent.id))
        .where(Agent.id.in_(agent_ids))
    )
    return {agent_id: ServedRank(agent_id, job_id, rank) for agent_id, job_id, rank in rows}


def unfinished_jobs(session: Session, sweep_id: int, *, now: dt.datetime) -> list[UnfinishedJob]:
    """Return a sweep's jobs that are not over, with the time since their gang was leased.

    Grouped by the database, since of a large sweep nearly all jobs wait and are alike.
    """
    rows = session.execute(
        select(Job.world_size, Attempt.leased_at, func.count())
        .outerjoin(Attempt, Attempt.id == Job.attempt_id)
        .where(Job.sweep_id == sweep_id, Job.state.not_in(FINAL_JOB_STATES))
        .group_by(Job.world_size, Attempt.leased_at)
    )
    unfinished: list[UnfinishedJob] = []
    for world_size, leased_at, count in rows:
        elapsed_s = (now - leased_at).total_seconds() if leased_at is not None else 0.0
        unfinished += [UnfinishedJob(world_size=world_size, elapsed_s=elapsed_s)] * count
    return unfinished


def measurement_stamp(session: Session) -> Hashable:
    """Return a value that changes whenever measurements are added or removed.

    SQLite gives the id of a removed last row away again, so the ids alone would not do.
    """
    columns = (MeasurementRow.id, MeasurementRow.created_at)
    return tuple(session.execute(select(func.count(), *map(func.max, columns))).one())


def jobs_of(session: Session, job_ids: Collection[int]) -> dict[int, Job]:
    """Return the jobs of these ids; of those that are gone there is nothing."""
    return {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(job_ids)))}


def sweep_jobs(session: Session, sweep_id: int, *, offset: int, limit: int) -> list[SweepJob]:
    """Return jobs of a sweep as a table to compare: like next to like, repetitions together.

    The order rests on what never changes, so pages of it neither repeat nor hide a job.
    """
    rows = session.execute(
        select(Job, MeasurementRow)
        .outerjoin(MeasurementRow, MeasurementRow.job_id == Job.id)
        .where(Job.sweep_id == sweep_id)
        .order_by(*BY_CELL)
        .offset(offset)
        .limit(limit)
    )
    return [SweepJob(job, measurement) for job, measurement in rows]
