"""The cells of a sweep that changes are read again in part, and come out as if read whole."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState, JobState
from farm.store.engine import reading, writing
from farm.store.measurements.cell_rows import CellJobs, changed_groups, job_groups
from farm.store.sweeps.jobs import request_cancel_job, retry_job
from farm.store.sweeps.sweeps import add_jobs
from farm.store.tables import JobRow
from tests import factories

_MANY = 1000
_LATER = factories.NOW + factories.seconds(3600)


def _sweep(engine: sa.Engine) -> tuple[int, list[int]]:
    """Add a sweep of two cells with three repetitions, the first of which is measured."""
    specs = [
        factories.job_spec(global_batch_size=batch, repetition=n)
        for batch in (32, 64)
        for n in range(3)
    ]
    with writing(engine) as session:
        job_ids = factories.add_sweep(session, *specs)
        _measure(session, job_ids[0])
        return session.get_one(JobRow, job_ids[0]).sweep_id, job_ids


def _measure(session: Session, job_id: int) -> None:
    factories.add_attempt(session, job_id, state=AttemptState.SUCCEEDED)
    factories.add_measurement(session, f"job {job_id}", job_id=job_id)


def _fail(session: Session, job_id: int) -> None:
    factories.add_attempt(session, job_id, state=AttemptState.FAILED)
    job = session.get_one(JobRow, job_id)
    job.finished_at, job.failure_kind = _LATER, "out_of_memory"


def _again(engine: sa.Engine, sweep_id: int, before: CellJobs) -> tuple[CellJobs | None, CellJobs]:
    """Return what is read again of a sweep, and what it would be if all were read."""
    with reading(engine) as session:
        whole = job_groups(session, sweep_id, max_jobs=_MANY)
        return changed_groups(session, sweep_id, before, max_jobs=_MANY), whole


def test_whatever_happens_the_part_that_is_read_again_makes_it_whole(engine: sa.Engine) -> None:
    sweep_id, job_ids = _sweep(engine)
    more = factories.job_spec(global_batch_size=64, repetition=3)
    changes: list[Callable[[Session], object]] = [
        lambda session: _measure(session, job_ids[1]),
        lambda session: factories.add_attempt(session, job_ids[2], state=AttemptState.RUNNING),
        lambda session: _fail(session, job_ids[3]),
        lambda session: retry_job(session, job_ids[3], now=_LATER),
        lambda session: request_cancel_job(session, job_ids[4], now=_LATER),
        lambda session: add_jobs(session, sweep_id, [more], priority=0, now=_LATER),
    ]
    with reading(engine) as session:
        known = job_groups(session, sweep_id, max_jobs=_MANY)
    assert known.is_complete
    for change in changes:
        with writing(engine) as session:
            change(session)
        found, whole = _again(engine, sweep_id, known)
        assert found is not None
        assert found.by_cell == whole.by_cell
        assert found.by_cell != known.by_cell
        known = found


def test_a_job_that_ends_by_a_clock_that_is_late_is_read_again(engine: sa.Engine) -> None:
    sweep_id, job_ids = _sweep(engine)
    with reading(engine) as session:
        known = job_groups(session, sweep_id, max_jobs=_MANY)
    with writing(engine) as session:
        _measure(session, job_ids[1])
        session.get_one(JobRow, job_ids[1]).finished_at = factories.NOW - factories.seconds(600)
    found, whole = _again(engine, sweep_id, known)
    assert found is not None
    assert found.by_cell == whole.by_cell != known.by_cell
    with reading(engine) as session:
        again = changed_groups(session, sweep_id, known, max_jobs=_MANY, most_read_by_id=0)
    assert again is None


def test_cells_in_which_nothing_changed_are_the_very_same(engine: sa.Engine) -> None:
    sweep_id, job_ids = _sweep(engine)
    with reading(engine) as session:
        known = job_groups(session, sweep_id, max_jobs=_MANY)
    with writing(engine) as session:
        _measure(session, job_ids[1])
    found, _ = _again(engine, sweep_id, known)
    assert found is not None
    is_same = [found.by_cell[cell] is jobs for cell, jobs in known.by_cell.items()]
    assert is_same == [False, True]


def test_a_cell_that_is_new_calls_for_reading_everything(engine: sa.Engine) -> None:
    sweep_id, _ = _sweep(engine)
    with reading(engine) as session:
        known = job_groups(session, sweep_id, max_jobs=_MANY)
    with writing(engine) as session:
        other = factories.job_spec(global_batch_size=128)
        add_jobs(session, sweep_id, [other], priority=0, now=_LATER)
    assert _again(engine, sweep_id, known)[0] is None
    nothing = CellJobs(by_cell={}, is_complete=True, last_id=0, last_end=None)
    assert _again(engine, sweep_id, nothing)[0] is None


def test_of_too_many_jobs_the_first_whole_cells_are_returned(engine: sa.Engine) -> None:
    sweep_id, job_ids = _sweep(engine)
    with reading(engine) as session:
        some = job_groups(session, sweep_id, max_jobs=4)
        assert not some.is_complete
        assert [[job.id for job in jobs] for jobs in some.by_cell.values()] == [job_ids[:3]]
        known = job_groups(session, sweep_id, max_jobs=_MANY)
        assert changed_groups(session, sweep_id, known, max_jobs=5) is None
        states = [job.state for jobs in known.by_cell.values() for job in jobs]
    assert states == [JobState.SUCCEEDED, *[JobState.WAITING] * 5]
