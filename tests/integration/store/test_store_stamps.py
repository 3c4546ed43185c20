"""A stamp is another one whenever its sweep or job has changed, and the same one otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading, writing
from farm.store.stamps import job_stamps, sweep_stamps
from farm.store.sweeps.jobs import request_cancel_job, retry_job
from farm.store.sweeps.sweeps import pause_sweep, resume_sweep
from farm.store.tables import AttemptRow, JobRow, RankRow, SweepRow
from tests import factories
from tests.web.web_client import Seeded, seed


@pytest.fixture
def seeded(engine: sa.Engine) -> Seeded:
    return seed(engine)


def _sweep(engine: sa.Engine, sweep_id: int) -> object:
    with reading(engine) as session:
        return sweep_stamps(session, {sweep_id})[sweep_id]


def _job(engine: sa.Engine, job_id: int, *, beat: int = 0) -> object:
    with reading(engine) as session:
        return job_stamps(session, {job_id}, beat=beat)[job_id]


def test_what_happens_to_a_sweep_changes_its_stamp(engine: sa.Engine, seeded: Seeded) -> None:
    changes: list[Callable[[Session], object]] = [
        lambda session: request_cancel_job(session, seeded.waiting, now=factories.NOW),
        lambda session: retry_job(session, seeded.failed, now=factories.NOW),
        lambda session: pause_sweep(session, seeded.sweep_id),
        lambda session: resume_sweep(
            session, seeded.sweep_id, budget_machine_s=9e6, now=factories.NOW
        ),
        lambda session: session.execute(
            sa.update(SweepRow).values(budget_used_up_at=factories.NOW)
        ),
        lambda session: factories.add_measurement(session, "late", job_id=seeded.failed),
    ]
    for change in changes:
        before = _sweep(engine, seeded.sweep_id)
        assert _sweep(engine, seeded.sweep_id) == before
        with writing(engine) as session:
            change(session)
        assert _sweep(engine, seeded.sweep_id) != before


def test_each_of_many_jobs_changes_the_stamp_of_its_sweep(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_ids = factories.add_sweep(session, *(factories.job_spec(seed=n) for n in range(3)))
        sweep_id = session.get_one(JobRow, job_ids[0]).sweep_id
    for job_id in job_ids:
        before = _sweep(engine, sweep_id)
        with writing(engine) as session:
            request_cancel_job(session, job_id, now=factories.NOW)
        assert _sweep(engine, sweep_id) != before


def test_another_sweep_changes_nothing(engine: sa.Engine, seeded: Seeded) -> None:
    before = _sweep(engine, seeded.sweep_id)
    with writing(engine) as session:
        [job_id] = factories.add_sweep(session, name="another")
        request_cancel_job(session, job_id, now=factories.NOW)
    assert _sweep(engine, seeded.sweep_id) == before


def test_what_happens_to_a_job_changes_its_stamp(engine: sa.Engine, seeded: Seeded) -> None:
    changes: list[tuple[int, Callable[[Session], object]]] = [
        (seeded.waiting, lambda s: request_cancel_job(s, seeded.waiting, now=factories.NOW)),
        (seeded.failed, lambda s: retry_job(s, seeded.failed, now=factories.NOW)),
        (seeded.measured, _end_a_rank_late),
    ]
    for job_id, change in changes:
        before = _job(engine, job_id)
        assert _job(engine, job_id, beat=1) == before
        with writing(engine) as session:
            change(session)
        assert _job(engine, job_id) != before, job_id


def _end_a_rank_late(session: Session) -> None:
    """What the collector does when the last report of a rank arrives after its job is over."""
    done = sa.select(AttemptRow.id).where(AttemptRow.state == AttemptState.SUCCEEDED)
    token = session.scalar(done.order_by(AttemptRow.id).limit(1))
    assert token is not None
    session.get_one(RankRow, (token, 1)).ended_at = factories.NOW


def test_a_job_that_runs_changes_with_the_beat(engine: sa.Engine, seeded: Seeded) -> None:
    assert _job(engine, seeded.running, beat=0) != _job(engine, seeded.running, beat=1)


def test_what_is_not_there_has_no_stamp(engine: sa.Engine) -> None:
    with reading(engine) as session:
        assert sweep_stamps(session, {1}) == {}
        assert job_stamps(session, {1}, beat=0) == {}
        assert sweep_stamps(session, set()) == {}
        assert job_stamps(session, set(), beat=0) == {}
