"""Jobs with their measurements and the attempts that made them. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState
from farm.store.base import is_known
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow, SweepRow
from farm.values.codec import from_json

_GO = f"attempt: {AttemptState.STARTING.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A job, its measurement, and the attempt and ranks that it is of.

    `go_at`: when the ranks were told to start, by the server's clock; the lease where that was not
    noted.
    """

    job: JobRow
    sweep: SweepRow
    attempt: AttemptRow
    ranks: Sequence[RankRow]
    measurement: MeasurementRow
    go_at: dt.datetime


def measured_attempts(session: Session, sweep_id: int) -> list[tuple[int, int]]:
    """Return the (job, attempt) of each measurement of a sweep, by job."""
    rows = session.execute(
        select(JobRow.id, AttemptRow.id)
        .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .join(AttemptRow, AttemptRow.id == MeasurementRow.attempt_id)
        .where(JobRow.sweep_id == sweep_id)
        .order_by(JobRow.id)
    )
    return [(job_id, token) for job_id, token in rows]


def measured_job(session: Session, job_id: int) -> MeasuredJob | None:
    """Return a job with its measurement; None if it has none, or no longer has one."""
    found = session.execute(
        select(JobRow, SweepRow, AttemptRow, MeasurementRow)
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .join(AttemptRow, AttemptRow.id == MeasurementRow.attempt_id)
        .where(JobRow.id == job_id)
    ).one_or_none()
    if found is None:
        return None
    job, sweep, attempt, measurement = found
    ranks = session.scalars(
        select(RankRow).where(RankRow.attempt_id == attempt.id).order_by(RankRow.rank)
    ).all()
    go_at = session.scalar(
        select(JobEvent.at)
        .where(JobEvent.job_id == job_id, JobEvent.attempt_id == attempt.id, JobEvent.event == _GO)
        .limit(1)
    )
    return MeasuredJob(
        job=job,
        sweep=sweep,
        attempt=attempt,
        ranks=ranks,
        measurement=measurement,
        go_at=go_at or attempt.leased_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """`duration_s`: from the lease of its gang to its end."""

    spec: JobSpec
    duration_s: float
    step_time_s: float


def last_training_runs(session: Session, *, limit: int) -> list[TrainingRun]:
    """Return the last attempts that measured a step time, the newest first."""
    rows = session.execute(
        select(JobRow.spec, AttemptRow.leased_at, AttemptRow.ended_at, MEASUREMENTS.step_time_s)
        .join(AttemptRow, AttemptRow.id == MeasurementRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(
            AttemptRow.state == AttemptState.SUCCEEDED,
            AttemptRow.ended_at.is_not(None),
            is_known(MEASUREMENTS.step_time_s),
        )
        .order_by(MeasurementRow.id.desc())
        .limit(limit)
    )
    return [
        TrainingRun(
            spec=from_json(JobSpec, spec),
            duration_s=(ended_at - leased_at).total_seconds(),
            step_time_s=step_time_s,
        )
        for spec, leased_at, ended_at, step_time_s in rows
        if ended_at is not None and step_time_s is not None
    ]
