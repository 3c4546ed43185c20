"""Sends measured jobs to a tracker: of a sweep when asked to, or each soon after it ended.

New jobs are sent by a process of its own: a tracker's library takes seconds of a core to load, and
a job with many samples as many to send. If it fails or hangs, it is tried again after a pause,
which grows to ten minutes; a job at which it failed three times is given up.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import Engine

from farm.errors import FarmError
from farm.gang.retries import doubled_pause_s
from farm.processes.subprocess_call import run_in_subprocess
from farm.store.engine import make_engine, reading, writing
from farm.store.measurements.measured_jobs import measured_attempts
from farm.store.sweeps.sweeps import find_sweep
from farm.store.tables import TrackerCursor
from farm.store.tracker_cursors import (
    LONGEST_PAUSE,
    PendingJob,
    claim_cursor,
    is_due,
    note_sent,
    note_try,
    pending_jobs,
    release_cursor,
    start_cursor,
)
from farm.trackers import find_tracker
from farm.trackers.contracts import TrackedSweep, Tracker
from farm.trackers.description import describe_job, describe_sweep, sweep_of_job

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
_FIRST_PAUSE_S = 5.0
_MOST_JOBS = 100  # of one process
_WORK_S = 60.0  # until it begins no other job
# Until it is ended: MLflow on SQLite took 98 s for 72,000 values on a busy machine.
_LIMIT_S = 540.0
_CLAIM = dt.timedelta(seconds=570)  # longer than that, and shorter than the longest pause


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSweep:
    """How many jobs were sent, and how many were there already."""

    sent_count: int
    former_count: int


def send_sweep(
    engine: Engine, tracker: Tracker, sweep: str, *, progress: Callable[[int, int], None]
) -> SentSweep:
    """Send the jobs of a sweep, by its id or name, that have a measurement and are not there yet.

    The store is read for one job at a time, so that no transaction lasts as long as the sending.

    Raises:
        NotFound: there is no such sweep.
        FarmError: the tracker does not take a job, or does not answer; those before it are sent.
    """
    with reading(engine) as session:
        row = find_sweep(session, sweep)
        described = describe_sweep(session, row)
        measured = measured_attempts(session, row.id)
    there = tracker.sent(described)
    lacking = [job_id for job_id, token in measured if described.job_key(token) not in there]
    sent_count = 0
    for done, job_id in enumerate(lacking, start=1):
        sent_count += _send_job(engine, tracker, job_id)
        progress(done, len(lacking))
    return SentSweep(sent_count=sent_count, former_count=len(measured) - len(lacking))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The input of the process. It is sent through a pipe, so that no process list shows it."""

    database_url: str
    tracker: str
    jobs: tuple[PendingJob, ...]


class Follower:
    """Looks for jobs to send. Several may run on one store: one of them sends at a time."""

    def __init__(self, engine: Engine, *, database_url: str, tracker: str) -> None:
        """`tracker`: as FARM_TRACKER has it."""
        self._engine = engine
        self._database_url = database_url
        self._tracker = tracker
        self._name = find_tracker(tracker)[0].name
        self._has_begun = False

    def turn(self) -> float:
        """Send what there is; return after how many seconds to look again."""
        now = dt.datetime.now(dt.UTC)
        if not self._has_begun:
            with writing(self._engine) as session:
                start_cursor(session, self._name, now=now)
            self._has_begun = True
        with reading(self._engine) as session:
            cursor = session.get_one(TrackerCursor, self._name)
            failure_count = cursor.failure_count
            jobs = pending_jobs(session, cursor, limit=_MOST_JOBS)
            if not jobs or not is_due(cursor, now=now):
                return LOOK_EVERY_S
        with writing(self._engine) as session:
            if not claim_cursor(session, self._name, now=now, claim=_CLAIM):
                return LOOK_EVERY_S
        trouble = self._send(tuple(jobs))
        failure_count = failure_count + 1 if trouble else 0
        pause_s = 0.0
        if trouble:
            most_s = LONGEST_PAUSE.total_seconds()
            pause_s = doubled_pause_s(failure_count, first_s=_FIRST_PAUSE_S, most_s=most_s)
        now = dt.datetime.now(dt.UTC)
        with writing(self._engine) as session:
            release_cursor(
                session,
                self._name,
                due_at=now + dt.timedelta(seconds=pause_s),
                failure_count=failure_count,
                trouble=trouble,
            )
        return LOOK_EVERY_S

    def _send(self, jobs: tuple[PendingJob, ...]) -> str | None:
        task = _Task(database_url=self._database_url, tracker=self._tracker, jobs=jobs)
        try:
            run_in_subprocess(_send_jobs, task, limit_s=_LIMIT_S)
        except FarmError as error:
            logger.warning("sending to %s failed: %s", self._name, error)
            return str(error)
        except Exception as error:
            logger.exception("sending to %s failed", self._name)
            return type(error).__name__
        return None


def _send_jobs(task: _Task) -> None:
    kind, destination = find_tracker(task.tracker)
    tracker = kind(destination)
    until_s = time.monotonic() + _WORK_S
    failure: FarmError | None = None
    there: dict[TrackedSweep, Collection[str]] = {}
    engine = make_engine(task.database_url)
    try:
        for job in task.jobs:
            if time.monotonic() > until_s:
                break
            with reading(engine) as session:
                sweep = sweep_of_job(session, job.job_id)
            # Asked again after a failure: what is away fails here, and no job is blamed for it.
            if sweep not in there:
                there[sweep] = tracker.sent(sweep)
            try:
                if sweep.job_key(job.token) not in there[sweep]:
                    with writing(engine) as session:
                        note_try(session, tracker.name, job.token)
                    _send_job(engine, tracker, job.job_id)
            except FarmError as error:
                failure = FarmError(f"job {job.job_id}: {error}")
                there.clear()
            else:
                with writing(engine) as session:
                    note_sent(session, tracker.name, job.token, now=dt.datetime.now(dt.UTC))
    finally:
        engine.dispose()
    if failure is not None:
        raise failure


def _send_job(engine: Engine, tracker: Tracker, job_id: int) -> bool:
    """Send a job; False: it is retried meanwhile, so there is nothing to send."""
    with reading(engine) as session:
        described = describe_job(session, job_id)
    if described is None:
        return False
    tracker.send(described)
    return True
