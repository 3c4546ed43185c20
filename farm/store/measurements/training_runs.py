"""Durations of whole attempts, with their measurements."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState
from farm.store.base import is_known
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobRow
from farm.values.codec import from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """`duration_s`: from the lease of its gang to its end."""

    spec: JobSpec
    duration_s: float
    step_time_s: float


def last_training_runs(session: Session, *, limit: int) -> list[TrainingRun]:
    """Return the last attempts that measured a step time, the newest first."""
    rows = session.execute(
        select(JobRow.spec, AttemptRow.leased_at, AttemptRow.ended_at, MeasurementRow.step_time_s)
        .join(AttemptRow, AttemptRow.id == MeasurementRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(
            AttemptRow.state == AttemptState.SUCCEEDED,
            AttemptRow.ended_at.is_not(None),
            is_known(MeasurementRow.step_time_s),
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
