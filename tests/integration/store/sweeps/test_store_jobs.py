from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from farm.configuration.spec import NetworkProfile
from farm.errors import InvalidSpec, InvalidTransition, NotFound
from farm.gang.lifecycle import AttemptState, JobState
from farm.store.engine import reading, writing
from farm.store.queue.waiting import waiting_jobs
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.jobs import (
    job_detail,
    list_jobs,
    request_cancel_job,
    request_cancel_sweep,
    retry_failed,
    retry_job,
)
from farm.store.tables import JobEvent, JobRow
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_job,
    add_measurement,
    add_sweep,
    job_spec,
    seconds,
)
from tests.services.postgres_server import wait_until_blocked

LATER = NOW + seconds(60)


def _job(engine: sa.Engine, job_id: int) -> JobRow:
    with reading(engine) as session:
        return session.get_one(JobRow, job_id)


def _last_event(engine: sa.Engine, job_id: int) -> JobEvent | None:
    with reading(engine) as session:
        newest = sa.select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.id.desc())
        return session.scalar(newest.limit(1))


def test_jobs_are_listed_in_pages_by_sweep_and_state(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_job(session)
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(4)))
        add_attempt(session, ids[1], state=AttemptState.SUCCEEDED)
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
        page = list_jobs(session, sweep_id=sweep_id, state=JobState.WAITING, limit=2)
        rest = list_jobs(
            session, sweep_id=sweep_id, state=JobState.WAITING, after_id=page[-1].id, limit=2
        )
    assert [job.id for job in [*page, *rest]] == [ids[0], ids[2], ids[3]]


def test_a_job_is_told_with_its_whole_story(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        add_agent(session, "a2")
        add_attempt(session, add_job(session), ["a1"])  # of another job
        job_id = add_job(session, job_spec(world_size=2))
        add_attempt(session, job_id, ["a2", "a1"], state=AttemptState.LOST)
        add_attempt(session, job_id, ["a1", "a2"], state=AttemptState.SUCCEEDED, number=2)
        for event in ("job: waiting", "job: leased"):
            session.add(JobEvent(job_id=job_id, at=NOW, event=event))
        add_measurement(session, f"job {job_id}", job_id=job_id)
    with reading(engine) as session:
        detail = job_detail(session, job_id)
    assert detail.job.id == job_id
    assert detail.sweep_name == "a sweep"
    assert [a.attempt.state for a in detail.attempts] == [AttemptState.LOST, AttemptState.SUCCEEDED]
    assert [[r.agent_id for r in a.ranks] for a in detail.attempts] == [["a2", "a1"], ["a1", "a2"]]
    assert [e.event for e in detail.events] == ["job: waiting", "job: leased"]
    assert detail.measurement is not None
    assert detail.measurement.job_id == job_id


def test_an_unknown_job_is_not_found(engine: sa.Engine) -> None:
    with writing(engine) as session:
        with pytest.raises(NotFound, match="job 9 does not exist"):
            job_detail(session, 9)
        with pytest.raises(NotFound):
            request_cancel_job(session, 9, now=NOW)
        with pytest.raises(NotFound):
            retry_job(session, 9, now=NOW)


def test_only_jobs_that_may_be_placed_now_wait(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_job(session, due_at=NOW + seconds(6), attempt_count=1)
        add_job(session, cancel_requested=True)
        add_attempt(session, add_job(session))
        add_attempt(session, add_job(session), state=AttemptState.SUCCEEDED)
        [waiting] = waiting_jobs(session, now=NOW + seconds(5))
    assert (waiting.job_id, waiting.waited_s) == (job_id, 5.0)


def test_when_only_some_are_asked_for_the_foremost_come(engine: sa.Engine) -> None:
    with writing(engine) as session:
        young = add_job(session, due_at=NOW)
        old = add_job(session, due_at=NOW - seconds(9))
        urgent = add_job(session, priority=3)
        waiting = waiting_jobs(session, now=NOW, limit=2)
        everyone = waiting_jobs(session, now=NOW)
    assert [job.job_id for job in waiting] == [urgent, old]
    assert [job.job_id for job in everyone] == [urgent, old, young]


@pytest.mark.parametrize(
    ("network", "emulator", "requires"),
    [
        (None, None, set()),
        (NetworkProfile(), "tcp_proxy", set()),
        (NetworkProfile(one_way_delay_s=0.02), None, {"network"}),
        (NetworkProfile(bandwidth_bytes_per_s=1e6), None, {"network"}),
        (NetworkProfile(one_way_delay_s=0.02), "tcp_proxy", {"tcp_proxy"}),
    ],
)
def test_only_a_shaped_network_needs_an_emulator(
    engine: sa.Engine, network: NetworkProfile | None, emulator: str | None, requires: set[str]
) -> None:
    spec = job_spec(world_size=2, network=network, emulator=emulator, labels={"zone": "a"})
    with writing(engine) as session:
        add_job(session, spec)
        [waiting] = waiting_jobs(session, now=NOW)
    assert waiting.requires == requires
    assert waiting.labels == {("zone", "a")}
    assert waiting.agent_count == 2


def test_a_waiting_job_is_cancelled_at_once(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        assert request_cancel_job(session, job_id, now=LATER)
    job, event = _job(engine, job_id), _last_event(engine, job_id)
    assert (job.state, job.finished_at) == (JobState.CANCELLED, LATER)
    assert event is not None
    assert (event.event, event.at) == ("job: cancelled", LATER)


@pytest.mark.parametrize("state", [AttemptState.PREPARING, AttemptState.RUNNING])
def test_an_active_job_is_only_marked(engine: sa.Engine, state: AttemptState) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        token = add_attempt(session, job_id, state=state)
        assert request_cancel_job(session, job_id, now=LATER)
        assert not request_cancel_job(session, job_id, now=LATER), "marked already"
    job, event = _job(engine, job_id), _last_event(engine, job_id)
    assert job.cancel_requested
    assert (job.attempt_id, job.finished_at) == (token, None)
    assert event is not None
    assert (event.event, event.attempt_id) == ("job: cancel requested", token)


def test_a_job_that_is_over_stays_as_it_is(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_attempt(session, job_id, state=AttemptState.SUCCEEDED)
        assert not request_cancel_job(session, job_id, now=LATER)
    job = _job(engine, job_id)
    assert (job.state, job.cancel_requested) == (JobState.SUCCEEDED, False)
    assert _last_event(engine, job_id) is None


def test_cancelling_a_sweep_counts_what_it_stops_and_leaves_others_alone(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        other = add_job(session)
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(4)))
        add_attempt(session, ids[2], state=AttemptState.RUNNING)
        add_attempt(session, ids[3], state=AttemptState.FAILED)
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
        assert request_cancel_sweep(session, sweep_id, now=LATER) == 3
        assert request_cancel_sweep(session, sweep_id, now=LATER) == 0
    assert _job(engine, other).state is JobState.WAITING


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_cancelling_sees_a_lease_made_meanwhile(engine: sa.Engine) -> None:
    """What a session has read before may be old when it comes to the lock."""
    with writing(engine) as session:
        job_id = add_job(session)
    with writing(engine) as session:
        seen = session.get_one(JobRow, job_id)  # held, or the session would forget it by itself
        assert seen.state is JobState.WAITING
        with writing(engine) as scheduler:
            add_attempt(scheduler, job_id)
        assert request_cancel_job(session, job_id, now=LATER)
    job = _job(engine, job_id)
    assert (job.state, job.cancel_requested) == (JobState.LEASED, True)


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.CANCELLED])
def test_a_retried_job_waits_as_if_new(engine: sa.Engine, state: AttemptState) -> None:
    with writing(engine) as session:
        job_id = add_job(
            session, cancel_requested=True, failure_kind="out_of_memory", reason="oom-killed"
        )
        add_attempt(session, job_id, state=state, number=3)
        retry_job(session, job_id, now=LATER)
    job, event = _job(engine, job_id), _last_event(engine, job_id)
    assert (job.state, job.due_at) == (JobState.WAITING, LATER)
    assert (job.attempt_count, job.cancel_requested) == (0, False)
    assert (job.failure_kind, job.reason, job.finished_at) == (None, None, None)
    assert event is not None
    assert event.event == "job: waiting"


def test_a_retry_removes_the_failed_measurement_of_that_job_alone(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, job_spec(), job_spec(repetition=1))
        for job_id in ids:
            add_attempt(session, job_id, state=AttemptState.FAILED)
            add_measurement(
                session, f"job {job_id}", job_id=job_id, status="out_of_memory", step_time_s=None
            )
        retry_job(session, ids[0], now=LATER)
        left = session.scalars(sa.select(MeasurementRow.job_id)).all()
    assert left == [ids[1]]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "waiting leads to"),
        (AttemptState.PREPARING, "it is leased; cancel it first"),
        (AttemptState.RUNNING, "it is running; cancel it first"),
        (AttemptState.SUCCEEDED, "it is final"),
    ],
)
def test_what_is_not_over_or_succeeded_cannot_be_retried(
    engine: sa.Engine, state: AttemptState | None, why: str
) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        if state is not None:
            add_attempt(session, job_id, state=state)
        with pytest.raises(InvalidTransition, match=f"job {job_id} cannot be retried: .*{why}"):
            retry_job(session, job_id, now=LATER)


def test_retrying_a_sweep_takes_what_failed_and_keeps_what_succeeded(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(4)))
        states = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED)
        for job_id, state in zip(ids, states, strict=False):
            add_attempt(session, job_id, state=state)
            add_measurement(session, f"job {job_id}", job_id=job_id, status=state.value)
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
        assert retry_failed(session, sweep_id, now=LATER) == 2
        jobs = list_jobs(session, sweep_id=sweep_id)
        left = session.scalars(sa.select(MeasurementRow.job_id)).all()
    assert [job.state for job in jobs] == [
        JobState.SUCCEEDED,
        JobState.WAITING,
        JobState.WAITING,
        JobState.WAITING,
    ]
    assert left == [ids[0]]


def test_what_has_lost_its_scripts_files_cannot_be_retried(engine: sa.Engine) -> None:
    script = {"model": "bundle:train.py@0123456789ab", "dataset": "script"}
    with writing(engine) as session:
        [job_id] = add_sweep(session, job_spec(**script, strategy="plain_script"))
        add_attempt(session, job_id, state=AttemptState.FAILED)
        sweep_id = session.get_one(JobRow, job_id).sweep_id
    for again in (
        lambda session: retry_failed(session, sweep_id, now=LATER),
        lambda session: retry_job(session, job_id, now=LATER),
    ):
        with writing(engine) as session, pytest.raises(InvalidSpec, match="sent before"):
            again(session)
        with reading(engine) as session:
            assert session.get_one(JobRow, job_id).state is JobState.FAILED


def test_two_that_cancel_one_sweep_at_once_count_each_job_once(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(5)))
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
    counts: list[int] = []

    def cancel() -> None:
        with writing(engine) as session:
            counts.append(request_cancel_sweep(session, sweep_id, now=LATER))

    second = threading.Thread(target=cancel)
    with writing(engine) as session:
        counts.append(request_cancel_sweep(session, sweep_id, now=LATER))
        second.start()
        wait_until_blocked(engine)
    second.join(timeout=30)
    assert counts == [5, 0]
