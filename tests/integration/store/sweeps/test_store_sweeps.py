from __future__ import annotations

import pytest
import sqlalchemy as sa

from farm.configuration.spec import JobSpec
from farm.errors import NotFound
from farm.gang.lifecycle import AttemptState, JobState, SweepState
from farm.store.engine import reading, writing
from farm.store.sweeps.jobs import list_jobs
from farm.store.sweeps.sweeps import (
    SweepStatus,
    find_sweep,
    insert_sweep,
    list_sweeps,
    pause_sweep,
    sweep_summary,
)
from farm.store.tables import JobEvent, JobRow
from farm.values.codec import from_json
from tests.factories import NOW, add_attempt, add_sweep, job_spec


def _insert(engine: sa.Engine, *jobs: JobSpec, name: str = "s") -> int:
    with writing(engine) as session:
        return insert_sweep(
            session,
            name=name,
            spec={"name": name},
            jobs=jobs,
            skipped=["single with 4 ranks"],
            priority=7,
            now=NOW,
        )


def test_a_stored_job_is_the_one_submitted(engine: sa.Engine) -> None:
    specs = [job_spec(global_batch_size=size, labels={"zone": "a"}) for size in (64, 32)]
    sweep_id = _insert(engine, *specs)
    with reading(engine) as session:
        jobs = list_jobs(session, sweep_id=sweep_id)
        assert [from_json(JobSpec, job.spec) for job in jobs] == specs
    assert [job.global_batch_size for job in jobs] == [64, 32]
    assert {job.state for job in jobs} == {JobState.WAITING}
    assert {job.priority for job in jobs} == {7}
    assert jobs[0].cell_hash == specs[0].cell_hash


def test_every_job_begins_its_story(engine: sa.Engine) -> None:
    _insert(engine, job_spec())
    sweep_id = _insert(engine, job_spec(), job_spec(repetition=1))
    with reading(engine) as session:
        story = session.execute(
            sa.select(JobEvent.event, JobEvent.at)
            .join(JobRow, JobRow.id == JobEvent.job_id)
            .where(JobRow.sweep_id == sweep_id)
        ).all()
    assert [tuple(row) for row in story] == [("job: waiting", NOW)] * 2


def test_a_sweep_of_ten_thousand_jobs_is_stored_whole(engine: sa.Engine) -> None:
    sweep_id = _insert(engine, *(job_spec(repetition=i) for i in range(10_000)))
    with reading(engine) as session:
        assert sweep_summary(session, sweep_id).counts[JobState.WAITING] == 10_000
        assert session.scalar(sa.select(sa.func.count()).select_from(JobEvent)) == 10_000


def test_a_sweep_is_found_by_id_before_name(engine: sa.Engine) -> None:
    first = _insert(engine, name="2")
    second = _insert(engine, name="other")
    with reading(engine) as session:
        assert find_sweep(session, str(second)).name == "other"
        assert find_sweep(session, str(first)).name == "2"


def test_a_name_means_the_newest_sweep_of_it(engine: sa.Engine) -> None:
    _insert(engine, name="nightly")
    newest = _insert(engine, name="nightly")
    with reading(engine) as session:
        assert find_sweep(session, "nightly").id == newest


def test_a_name_may_be_a_number_that_is_no_id(engine: sa.Engine) -> None:
    sweep_id = _insert(engine, name="2026")
    with reading(engine) as session:
        assert find_sweep(session, "2026").id == sweep_id


@pytest.mark.parametrize("unknown", ["", "9", "²", "nightly", "9" * 40, "-1"])
def test_an_unknown_sweep_is_not_found(engine: sa.Engine, unknown: str) -> None:
    _insert(engine)
    with reading(engine) as session, pytest.raises(NotFound, match="does not exist"):
        find_sweep(session, unknown)


def test_a_summary_counts_every_state(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(3)))
        add_attempt(session, ids[0], state=AttemptState.SUCCEEDED)
        add_attempt(session, ids[1], state=AttemptState.RUNNING)
        [summary] = list_sweeps(session)
    assert summary.counts == {
        JobState.WAITING: 1,
        JobState.LEASED: 0,
        JobState.RUNNING: 1,
        JobState.SUCCEEDED: 1,
        JobState.FAILED: 0,
        JobState.CANCELLED: 0,
    }
    assert (summary.job_count, summary.final_count) == (3, 1)
    assert summary.state is SweepState.RUNNING


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], SweepState.FINISHED),
        ([None, None], SweepState.WAITING),
        ([None, AttemptState.LOST], SweepState.WAITING),
        ([None, AttemptState.PREPARING], SweepState.RUNNING),
        ([None, AttemptState.FAILED], SweepState.RUNNING),
        ([AttemptState.SUCCEEDED, AttemptState.FAILED], SweepState.FINISHED),
    ],
)
def test_a_sweep_is_in_the_state_that_its_jobs_say(
    engine: sa.Engine, states: list[AttemptState | None], expected: SweepState
) -> None:
    sweep_id = _insert(engine, *(job_spec(repetition=i) for i in range(len(states))))
    with writing(engine) as session:
        for job, state in zip(list_jobs(session, sweep_id=sweep_id), states, strict=True):
            if state is not None:
                add_attempt(session, job.id, state=state)
        assert sweep_summary(session, sweep_id).state is expected


def test_sweeps_are_listed_newest_first_in_pages(engine: sa.Engine) -> None:
    ids = [_insert(engine, name=name) for name in "abc"]
    with reading(engine) as session:
        page = list_sweeps(session, limit=2)
        rest = list_sweeps(session, before_id=page[-1].sweep_id, limit=2)
    assert [s.sweep_id for s in page + rest] == ids[::-1]
    assert page[0].skipped_count == 1


@pytest.mark.parametrize("is_paused", [False, True])
def test_every_sweep_is_found_by_its_status_and_by_no_other(
    engine: sa.Engine, is_paused: bool
) -> None:
    histories: list[list[AttemptState | None]] = [
        [],
        [None, None],
        [None, AttemptState.LOST],
        [None, AttemptState.PREPARING],
        [None, AttemptState.FAILED],
        [AttemptState.SUCCEEDED, AttemptState.CANCELLED],
    ]
    for states in histories:
        sweep_id = _insert(engine, *(job_spec(repetition=i) for i in range(len(states))))
        with writing(engine) as session:
            if is_paused:
                pause_sweep(session, sweep_id)
            for job, state in zip(list_jobs(session, sweep_id=sweep_id), states, strict=True):
                if state is not None:
                    add_attempt(session, job.id, state=state)
    with reading(engine) as session:
        statuses = {summary.sweep_id: summary.status for summary in list_sweeps(session)}
        found = {
            summary.sweep_id: status
            for status in SweepStatus
            for summary in list_sweeps(session, status=status)
        }
        listed = sum(len(list_sweeps(session, status=status)) for status in SweepStatus)
    assert found == statuses
    assert listed == len(histories)
    finished, waits, runs = SweepStatus.FINISHED, SweepStatus.WAITING, SweepStatus.RUNNING
    if is_paused:
        waits = runs = SweepStatus.PAUSED
    assert list(statuses.values())[::-1] == [finished, waits, waits, runs, runs, finished]


def test_sweeps_of_one_status_come_in_pages_too(engine: sa.Engine) -> None:
    ids = [_insert(engine, *([job_spec()] if n % 2 else [])) for n in range(6)]
    with reading(engine) as session:
        page = list_sweeps(session, limit=2, status=SweepStatus.WAITING)
        rest = list_sweeps(
            session, limit=2, status=SweepStatus.WAITING, before_id=page[-1].sweep_id
        )
    assert [s.sweep_id for s in page + rest] == ids[5::-2]
