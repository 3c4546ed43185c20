"""The history of one job: every change of its state and of its attempts' states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow, SweepRow

# A job that was retried for weeks has thousands; a page tells the latest.
_MOST_EVENTS = 500
_MOST_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A job, its latest attempts and events in the order in which they happened.

    `is_cut`: there were more, earlier.
    """

    job: JobRow
    sweep_name: str
    attempts: Sequence[AttemptRow]
    events: Sequence[JobEvent]
    measurement: MeasurementRow | None
    is_cut: bool


def job_story(session: Session, job_id: int) -> Story:
    """Return the story of a job. Raises NotFound where there is no such job."""
    found = session.execute(
        select(JobRow, SweepRow.name)
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .where(JobRow.id == job_id)
    ).one_or_none()
    if found is None:
        raise NotFound(f"job {job_id}: there is none; `farm jobs` lists them")
    job, sweep_name = found
    attempts = session.scalars(
        select(AttemptRow)
        .where(AttemptRow.job_id == job_id)
        .order_by(AttemptRow.number.desc())
        .limit(_MOST_ATTEMPTS + 1)
    ).all()
    events = session.scalars(
        select(JobEvent)
        .where(JobEvent.job_id == job_id)
        .order_by(JobEvent.id.desc())
        .limit(_MOST_EVENTS + 1)
    ).all()
    return Story(
        job=job,
        sweep_name=sweep_name,
        attempts=attempts[_MOST_ATTEMPTS - 1 :: -1],
        events=events[_MOST_EVENTS - 1 :: -1],
        measurement=session.scalar(select(MeasurementRow).where(MeasurementRow.job_id == job_id)),
        is_cut=len(attempts) > _MOST_ATTEMPTS or len(events) > _MOST_EVENTS,
    )


def ranks_of(session: Session, token: int, *, limit: int) -> tuple[Sequence[RankRow], int]:
    """Return an attempt's first ranks in order, and how many it has in all."""
    query = select(RankRow).where(RankRow.attempt_id == token).order_by(RankRow.rank).limit(limit)
    count = select(func.count()).select_from(RankRow).where(RankRow.attempt_id == token)
    return session.scalars(query).all(), session.scalar(count) or 0
