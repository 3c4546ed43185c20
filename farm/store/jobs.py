"""Jobs: looked up, queued for the scheduler, cancelled and asked for again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session

from farm.core.lifecycle import ACTIVE_JOB_STATES, AttemptState, JobState, move
from farm.core.trainer_lines import FailureKind
from farm.core.views import WaitingJob
from farm.errors import InvalidTransition, NotFound
from farm.store.repetitions import CellServers, cell_servers
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Attempt, Job, JobEvent, Rank, Sweep

_IDS_A_QUERY = 1000  # databases limit the parameters of one statement
# Of so many jobs at the head of the queue it is looked up who has measured their cells.
_SPREAD_COUNT = 500
# The ranks that said nothing are then the ones at fault.
_WAS_STALLED = Attempt.failure_kind == FailureKind.STALLED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetail:
    attempt: Attempt
    ranks: tuple[Rank, ...]  # in order of rank


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """A job with its whole story, attempts and events in the order in which they happened."""

    job: Job
    sweep_name: str
    attempts: tuple[AttemptDetail, ...]
    events: tuple[JobEvent, ...]
    measurement: MeasurementRow | None


def list_jobs(
    session: Session,
    *,
    sweep_id: int | None = None,
    state: JobState | None = None,
    after_id: int | None = None,
    limit: int = 100,
) -> Sequence[Job]:
    """Return jobs by ascending id; `after_id` goes on from a page's last."""
    query = select(Job).order_by(Job.id).limit(limit)
    if sweep_id is not None:
        query = query.where(Job.sweep_id == sweep_id)
    if state is not None:
        query = query.where(Job.state == state)
    if after_id is not None:
        query = query.where(Job.id > after_id)
    return session.scalars(query).all()


def job_detail(session: Session, job_id: int) -> JobDetail:
    """Return a job with its attempts, their ranks, its events and its measurement.

    Raises:
        NotFound: there is no such job.
    """
    found = session.execute(
        select(Job, Sweep.name).join(Sweep, Sweep.id == Job.sweep_id).where(Job.id == job_id)
    ).one_or_none()
    if found is None:
        raise _no_job(job_id)
    job, sweep_name = found
    attempts = session.scalars(
        select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.id)
    ).all()
    ranks: dict[int, list[Rank]] = {attempt.id: [] for attempt in attempts}
    members = select(Rank).where(Rank.attempt_id.in_(ranks)).order_by(Rank.attempt_id, Rank.rank)
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


def waiting_jobs(
    session: Session,
    *,
    now: dt.datetime,
    limit: int = 10_000,
    is_spread: bool = True,
    expected_s: Mapping[str, float] | None = None,
) -> list[WaitingJob]:
    """Return the jobs that may be placed now: higher priority first, then the longer wait.

    A job in the pause before its next attempt is not among them, nor is one of a paused sweep.
    `is_spread`: look up who has measured their cells, over whom repetitions are to be spread.
    `expected_s`: by cell hash, how long jobs take, if that is known.
    """
    rows = session.execute(
        select(
            Job.id,
            Job.sweep_id,
            Job.cell_hash,
            Job.repetition,
            Job.rank_count,
            Job.requires,
            Job.priority,
            Job.due_at,
            Job.spec["labels"].label("labels"),  # a queue is long, and specifications are wide
            Job.attempt_count,
        )
        .where(*_may_be_placed(now))
        .order_by(Job.priority.desc(), Job.due_at, Job.id)
        .limit(limit)
    ).all()
    avoid = _failed_agents(session, [row.id for row in rows if row.attempt_count > 0])
    first = rows[:_SPREAD_COUNT] if is_spread else []
    again = [(row.sweep_id, row.cell_hash) for row in first if row.repetition > 0]
    servers = cell_servers(session, again)
    nobody = CellServers()
    lengths_s = expected_s or {}
    return [
        WaitingJob(
            job_id=row.id,
            sweep_id=row.sweep_id,
            rank_count=row.rank_count,
            requires=frozenset(row.requires),
            labels=frozenset((row.labels or {}).items()),
            avoid=frozenset(avoid.get(row.id, ())),
            measured_by=servers.get((row.sweep_id, row.cell_hash), nobody).rank_counts,
            measured_on=frozenset(servers.get((row.sweep_id, row.cell_hash), nobody).fingerprints),
            priority=row.priority,
            waited_s=(now - row.due_at).total_seconds(),
            expected_s=lengths_s.get(row.cell_hash),
        )
        for row in rows
    ]


def waiting_place(session: Session, job: Job, *, now: dt.datetime) -> int:
    """Return how many jobs `waiting_jobs` would have before this one."""
    # Row values: the order of `waiting_jobs`.
    is_before = tuple_(-Job.priority, Job.due_at, Job.id) < (-job.priority, job.due_at, job.id)
    count = select(func.count()).select_from(Job).where(*_may_be_placed(now), is_before)
    return session.scalar(count) or 0


def _may_be_placed(now: dt.datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        Job.state == JobState.WAITING,
        Job.cancel_requested.is_(False),
        Job.due_at <= now,
        Job.sweep_id.not_in(select(Sweep.id).where(Sweep.is_paused)),
    )


def _failed_agents(session: Session, job_ids: Sequence[int]) -> dict[int, set[str]]:
    """Return job to agents on which an attempt of it was lost or void for a reason of their own."""
    found: dict[int, set[str]] = {}
    for begin in range(0, len(job_ids), _IDS_A_QUERY):
        ends = session.execute(
            select(Attempt.job_id, Rank.agent_id, Rank.ended, Rank.disturbed_by)
            .join(Rank, Rank.attempt_id == Attempt.id)
            .where(
                Attempt.job_id.in_(job_ids[begin : begin + _IDS_A_QUERY]),
                or_(
                    and_(Attempt.state == AttemptState.LOST, Rank.ended.is_not(None)),
                    and_(_WAS_STALLED, Rank.ended.is_(None)),
                    Rank.disturbed_by.is_not(None),
                ),
            )
        )
        for job_id, agent_id, ended, disturbed_by in ends:
            failure = (ended or {}).get("failure")
            is_own = failure and failure.get("kind") != FailureKind.PEER_LOST.value
            if disturbed_by is not None or is_own or ended is None:
                found.setdefault(job_id, set()).add(agent_id)
    return found


def request_cancel_job(
    session: Session, job_id: int, *, now: dt.datetime, by: str | None = None
) -> bool:
    """Cancel a job, as `request_cancel_sweep` does; return False where there was nothing to do.

    Raises:
        NotFound: there is no such job.
    """
    count = _cancel(session, Job.id == job_id, now=now, by=by)
    if count == 0 and session.get(Job, job_id) is None:
        raise _no_job(job_id)
    return count == 1


def request_cancel_sweep(
    session: Session, sweep_id: int, *, now: dt.datetime, by: str | None = None
) -> int:
    """Cancel what a sweep has not finished; return how many jobs that was.

    A waiting job is cancelled at once. One that is leased or running is only marked: the
    scheduler ends its attempt. Jobs that are over or marked already stay as they are. `by`: who
    asked, for the jobs' stories.
    """
    return _cancel(session, Job.sweep_id == sweep_id, now=now, by=by)


def retry_job(session: Session, job_id: int, *, now: dt.datetime, by: str | None = None) -> None:
    """Ask again for a job that failed or was cancelled, with all its attempts before it.

    A failed measurement of it is removed, since the job is not finished any more.

    Raises:
        NotFound: there is no such job.
        InvalidTransition: it succeeded, or is not over yet.
    """
    job = session.get(Job, job_id, with_for_update=True)
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
    _retry(session, Job.id == job_id, now=now, by=by)


def retry_failed(
    session: Session, sweep_id: int, *, now: dt.datetime, by: str | None = None
) -> int:
    """Ask again for every job of a sweep that failed or was cancelled; return how many."""
    return _retry(session, Job.sweep_id == sweep_id, now=now, by=by)


def _cancel(
    session: Session, which: ColumnElement[bool], *, now: dt.datetime, by: str | None
) -> int:
    unfinished = or_(
        Job.state == JobState.WAITING,
        and_(Job.state.in_(ACTIVE_JOB_STATES), Job.cancel_requested.is_(False)),
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
    over = Job.state.in_((JobState.FAILED, JobState.CANCELLED))
    jobs = _locked(session, which, over)
    session.execute(
        delete(MeasurementRow).where(MeasurementRow.job_id.in_(select(Job.id).where(which, over)))
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


def _locked(session: Session, *which: ColumnElement[bool]) -> Sequence[Job]:
    """Lock jobs in the order of their ids, so that two callers never wait for each other."""
    query = select(Job).where(*which).order_by(Job.id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).all()


def _event(job: Job, event: str, *, reason: str, now: dt.datetime) -> JobEvent:
    return JobEvent(job_id=job.id, attempt_id=job.attempt_id, at=now, event=event, reason=reason)


def _no_job(job_id: int) -> NotFound:
    return NotFound(f"job {job_id}: there is none; `farm jobs` lists them")
