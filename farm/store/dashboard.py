"""Summaries of the whole store for the dashboard. Reads only; one query each."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from sqlalchemy import BigInteger, and_, cast, extract, func, select
from sqlalchemy.orm import Session, defer

from farm.gang.lifecycle import JobState
from farm.measuring.quantities import FURTHER_QUANTITIES
from farm.store.measurements.repetitions import BY_CELL
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow

_AN_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class LeasedRank:
    """The job that an agent is leased for."""

    agent_id: str
    job_id: int
    rank: int


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A job of a sweep and its result; None: no result yet."""

    job: JobRow
    measurement: MeasurementRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedHour:
    """How many jobs finished in sixty minutes; `hours_ago` 0: in those that end now."""

    hours_ago: int
    succeeded_count: int
    failed_count: int

    @property
    def job_count(self) -> int:
        """The number of jobs with a result; a failed configuration is a result."""
        return self.succeeded_count + self.failed_count


def job_counts(session: Session) -> dict[JobState, int]:
    """Count all jobs by state, those states without a job too."""
    rows = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
    return dict.fromkeys(JobState, 0) | {state: count for state, count in rows}


def served_ranks(session: Session, agent_ids: Collection[str] | None) -> dict[str, LeasedRank]:
    """Return by id the lease of each of the agents; idle ones are left out.

    None: all agents. To name a hundred of them takes longer than to find what they serve.
    """
    query = (
        select(AgentRow.id, AttemptRow.job_id, RankRow.rank)
        .join(AttemptRow, AttemptRow.id == AgentRow.attempt_id)
        .join(
            RankRow,
            and_(RankRow.attempt_id == AgentRow.attempt_id, RankRow.agent_id == AgentRow.id),
        )
    )
    rows = session.execute(query if agent_ids is None else query.where(AgentRow.id.in_(agent_ids)))
    return {agent_id: LeasedRank(agent_id, job_id, rank) for agent_id, job_id, rank in rows}


def finished_per_hour(session: Session, *, now: dt.datetime, hour_count: int) -> list[FinishedHour]:
    """Count the measured and failed jobs of each of the last hours, the oldest first.

    They begin with the first one in which there was anything; empty where there is none.
    """
    # Grouped by the database, by the whole seconds that both kinds can tell.
    ago_s = cast(int(now.timestamp()) - extract("epoch", JobRow.finished_at), BigInteger)
    rows = session.execute(
        select((ago_s // _AN_HOUR_S).label("hours_ago"), JobRow.state, func.count())
        .where(
            JobRow.state.in_((JobState.SUCCEEDED, JobState.FAILED)),
            JobRow.finished_at > now - dt.timedelta(hours=hour_count),
        )
        .group_by("hours_ago", JobRow.state)
    )
    # What ends at this very moment may seem to end later, by another machine's clock.
    counts = Counter[tuple[int, JobState]]()
    for hours_ago, state, count in rows:
        counts[min(max(hours_ago, 0), hour_count - 1), state] += count
    return [
        FinishedHour(
            hours_ago=hours_ago,
            succeeded_count=counts[hours_ago, JobState.SUCCEEDED],
            failed_count=counts[hours_ago, JobState.FAILED],
        )
        for hours_ago in range(max((ago for ago, _ in counts), default=-1), -1, -1)
    ]


def measurement_stamp(session: Session) -> Hashable:
    """Return a value that changes whenever measurements are added or removed.

    SQLite gives the id of a removed last row away again, so its id alone would not do.
    """
    # The row with the highest id, which the index finds; the latest instant would need every row.
    last = select(MeasurementRow.created_at).order_by(MeasurementRow.id.desc()).limit(1)
    row = select(func.count(), func.max(MeasurementRow.id), last.scalar_subquery())
    return tuple(session.execute(row.select_from(MeasurementRow)).one())


def jobs_of(session: Session, job_ids: Collection[int]) -> dict[int, JobRow]:
    """Return the jobs of these ids; deleted ones are left out."""
    return {job.id: job for job in session.scalars(select(JobRow).where(JobRow.id.in_(job_ids)))}


def sweep_jobs(session: Session, sweep_id: int, *, offset: int, limit: int) -> list[SweepJob]:
    """Return jobs of a sweep as a table to compare: like next to like, repetitions together.

    The order rests on what never changes, so pages of it neither repeat nor hide a job.
    """
    # Which jobs is found out by their ids: to sort thousands of whole rows takes longer. Most of
    # what would be read are details, which a list needs only for quantities without a column.
    unread = () if FURTHER_QUANTITIES else (defer(MeasurementRow.details, raiseload=True),)
    page = select(JobRow.id).where(JobRow.sweep_id == sweep_id).order_by(*BY_CELL)
    chosen = page.offset(offset).limit(limit).subquery()
    rows = session.execute(
        select(JobRow, MeasurementRow)
        .join(chosen, chosen.c.id == JobRow.id)
        .outerjoin(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .order_by(*BY_CELL)
        .options(*unread)
    )
    return [SweepJob(job, measurement) for job, measurement in rows]
