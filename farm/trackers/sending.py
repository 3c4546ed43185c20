"""Sends a sweep's measured jobs to a tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine

from farm.store.engine import reading
from farm.store.measurements.measured_jobs import measured_attempts
from farm.store.sweeps.sweeps import find_sweep
from farm.trackers.contracts import Tracker
from farm.trackers.description import describe_job, describe_sweep


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
        with reading(engine) as session:
            job = describe_job(session, job_id)
        if job is not None:  # else it is retried meanwhile
            tracker.send(job)
            sent_count += 1
        progress(done, len(lacking))
    return SentSweep(sent_count=sent_count, former_count=len(measured) - len(lacking))
