"""Jobs in the store: look up, read their history, cancel, retry."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from farm.errors import InvalidTransition, NotFound
from farm.gang.lifecycle import ACTIVE_JOB_STATES, UNSUCCESSFUL_JOB_STATES, JobState, move
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.bundles import check_bundles
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow, SweepRow

# A job that was retried for weeks has thousands; a page tells the latest.
_MOST_EVENTS = 500
_MOST_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetail:
    attempt: AttemptRow
    ranks: tuple[RankRow, ...]  # in order of rank

    def find_rank(self, number: int | None) -> RankRow:
        """Return the rank with a number, or rank 0.

        Raises:
            NotFound: the gang has none with this number.
        """
        for row in self.ranks:
            if row.rank == (number or 0):
                return row
        where = f"attempt {self.attempt.number} of job {self.attempt.job_id}"
        raise NotFound(f"rank {number or 0} of {where} does not exist")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """A job with its whole story, attempts and events in the order in which they happened."""

    job: JobRow
    sweep_name: str
    attempts: tuple[AttemptDetail, ...]
    events: tuple[JobEvent, ...]
    measurement: MeasurementRow | None

    def find_attempt(self, number: int | None) -> AttemptDetail | None:
        """Return the attempt with a number, or the last one; None: the job had none yet.

        Raises:
            NotFound: it has none with this number.
        """
        if number is None:
            return self.attempts[-1] if self.attempts else None
        for attempt in self.attempts:
            if attempt.attempt.number == number:
                return attempt
        raise NotFound(f"attempt {number} of job {self.job.id} does not exist")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """A job on its page: its latest attempts and events in the order in which they happened.

    `is_cut`: there were more, earlier.
    """

    job: JobRow
    sweep_name: str
    attempts: Sequence[AttemptRow]
    events: Sequence[JobEvent]
    measurement: MeasurementRow | None
    is_cut: bool


def list_jobs(
    session: Session,
    *,
    sweep_id: int | None = None,
    state: JobState | None = None,
    after_id: int | None = None,
    limit: int = 100,
) -> Sequence[JobRow]:
    """Return jobs by ascending id; `after_id` goes on from a page's last."""
    query = select(JobRow).order_by(JobRow.id).limit(limit)
    if sweep_id is not None:
        query = query.where(JobRow.sweep_id == sweep_id)
    if state is not None:
        query = query.where(JobRow.state == state)
    if after_id is not None:
        query = query.where(JobRow.id > after_id)
    return session.scalars(query).all()


def job_detail(session: Session, job_id: int) -> JobDetail:
    """Return a job with its attempts, their ranks, its events and its measurement.

    Raises:
        NotFound: there is no such job.
    """
    job, sweep_name = _job_and_sweep_name(session, job_id)
    attempts = session.scalars(
        select(AttemptRow).where(AttemptRow.job_id == job_id).order_by(AttemptRow.id)
    ).all()
    ranks: dict[int, list[RankRow]] = {attempt.id: [] for attempt in attempts}
    members = (
        select(RankRow)
        .where(RankRow.attempt_id.in_(ranks))
        .order_by(RankRow.attempt_id, RankRow.rank)
    )
    for rank in session.scalars(members):
        ranks[rank.attempt_id].append(rank)
    events = select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.id)
    measured = select(MeasurementRow).where(MeasurementRow.job_id == job_id)
    return JobDetail(
        job=job,
        sweep_name=sweep_name,
        attempts=tuple(AttemptDetail(attempt=a, ranks=tuple(ranks[a.id])) for a in attempts),
        events=tuple(session.scalars(events)),
        measurement=session.scalar(measured),
    )


def job_story(session: Session, job_id: int) -> JobHistory:
    """Return the story of a job.

    Raises:
        NotFound: there is no such job.
    """
    job, sweep_name = _job_and_sweep_name(session, job_id)
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
    return JobHistory(
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


def _job_and_sweep_name(session: Session, job_id: int) -> tuple[JobRow, str]:
    found = session.execute(
        select(JobRow, SweepRow.name)
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .where(JobRow.id == job_id)
    ).one_or_none()
    if found is None:
        raise _no_job(job_id)
    job, sweep_name = found
    return job, sweep_name


def request_cancel_job(
    session: Session, job_id: int, *, now: dt.datetime, by: str | None = None
) -> bool:
    """Cancel a job, as `request_cancel_sweep` does; return False if there was nothing to do.

    Raises:
        NotFound: there is no such job.
    """
    count = _cancel(session, JobRow.id == job_id, now=now, by=by)
    if count == 0 and session.get(JobRow, job_id) is None:
        raise _no_job(job_id)
    return count == 1


def request_cancel_sweep(
    session: Session, sweep_id: int, *, now: dt.datetime, by: str | None = None
) -> int:
    """Cancel the unfinished jobs of a sweep; return how many there were.

    A waiting job is cancelled at once. One that is leased or running is only marked: the
    scheduler ends its attempt. Jobs that are over or marked already stay as they are. `by`: who
    asked, for the jobs' stories.
    """
    return _cancel(session, JobRow.sweep_id == sweep_id, now=now, by=by)


def retry_job(session: Session, job_id: int, *, now: dt.datetime, by: str | None = None) -> None:
    """Ask again for a job that failed or was cancelled, with all its attempts before it.

    A failed measurement of it is removed, since the job is not finished any more.

    Raises:
        NotFound: there is no such job.
        InvalidTransition: it succeeded, or is not over yet.
        InvalidSpec: its script's files are not in the store any more.
    """
    job = session.get(JobRow, job_id, with_for_update=True)
    if job is None:
        raise _no_job(job_id)
    try:
        move(job.state, JobState.WAITING)
    except InvalidTransition as error:
        raise InvalidTransition(f"job {job_id} cannot be retried: {error}") from None
    if job.state in ACTIVE_JOB_STATES:
        raise InvalidTransition(
            f"job {job_id} cannot be retried: it is {job.state.value}; cancel it first"
        )
    _retry(session, JobRow.id == job_id, now=now, by=by)


def retry_failed(
    session: Session, sweep_id: int, *, now: dt.datetime, by: str | None = None
) -> int:
    """Ask again for every job of a sweep that failed or was cancelled; return how many.

    Raises:
        InvalidSpec: the files of a job's script are not in the store any more.
    """
    return _retry(session, JobRow.sweep_id == sweep_id, now=now, by=by)


def _cancel(
    session: Session, which: ColumnElement[bool], *, now: dt.datetime, by: str | None
) -> int:
    unfinished = or_(
        JobRow.state == JobState.WAITING,
        and_(JobRow.state.in_(ACTIVE_JOB_STATES), JobRow.cancel_requested.is_(False)),
    )
    count, is_first = 0, True
    # Looked for again, since a scheduler that held a lock until now may have ended the job behind
    # it and added repetitions, which the first look cannot have seen.
    while (jobs := _locked(session, which, unfinished)) or is_first:
        is_first = False
        for job in jobs:
            if job.state is JobState.WAITING:
                job.state = move(job.state, JobState.CANCELLED)
                job.reason, job.finished_at = f"cancelled {_on_request(by)}", now
                event = f"job: {job.state.value}"
            else:
                job.cancel_requested = True
                event = "job: cancel requested"
            session.add(_event(job, event, reason=_on_request(by), now=now))
        session.flush()
        count += len(jobs)
    return count


def _retry(
    session: Session, which: ColumnElement[bool], *, now: dt.datetime, by: str | None
) -> int:
    over = JobRow.state.in_(UNSUCCESSFUL_JOB_STATES)
    jobs = _locked(session, which, over)
    check_bundles(session, [job.model for job in jobs])
    session.execute(
        delete(MeasurementRow).where(
            MeasurementRow.job_id.in_(select(JobRow.id).where(which, over))
        )
    )
    for job in jobs:
        job.state = move(job.state, JobState.WAITING)
        job.attempt_count, job.due_at = 0, now
        job.cancel_requested = False
        job.failure_kind = job.reason = job.finished_at = None
        session.add(
            _event(job, f"job: {job.state.value}", reason=f"retried {_on_request(by)}", now=now)
        )
    session.flush()
    return len(jobs)


def _on_request(by: str | None) -> str:
    return "on request" if by is None else f"on request of {by}"


def _locked(session: Session, *which: ColumnElement[bool]) -> Sequence[JobRow]:
    """Lock jobs in the order of their ids, so that two callers never wait for each other."""
    query = select(JobRow).where(*which).order_by(JobRow.id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).all()


def _event(job: JobRow, event: str, *, reason: str, now: dt.datetime) -> JobEvent:
    return JobEvent(job_id=job.id, attempt_id=job.attempt_id, at=now, event=event, reason=reason)


def _no_job(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} does not exist; `farm jobs` lists them")
