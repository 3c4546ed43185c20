"""Whatever dies during a sweep: every job ends in exactly one outcome, and nothing is left."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from farm.core.lifecycle import AttemptState, JobState
from farm.core.trainer_lines import FailureKind
from farm.store.engine import writing
from farm.store.jobs import request_cancel_sweep
from tests.e2e.live_farm import LiveFarm, live_farm, wait_until

# Long enough that a fault meets the attempt while it runs.
STEADY = {"FAKE_TRAINER": "steps_s:0.01"}
LONG = {"steps": 400}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LiveFarm]:
    with live_farm(tmp_path, agent_count=2, trainer=STEADY) as running:
        yield running


def assert_measured_once(farm: LiveFarm, sweep_id: int) -> None:
    jobs = farm.wait_for_end(sweep_id)
    assert [j.state for j in jobs] == [JobState.SUCCEEDED] * len(jobs), farm.story(sweep_id)
    assert [farm.measurement_count(j.id) for j in jobs] == [1] * len(jobs)
    for job in jobs:
        states = [a.state for a in farm.attempts(job.id)]
        assert states.count(AttemptState.SUCCEEDED) == 1


def test_a_sweep_is_measured_job_by_job(farm: LiveFarm) -> None:
    sweep_id = farm.submit(global_batch_size=[32, 64], repetitions=2)
    assert_measured_once(farm, sweep_id)
    farm.wait_for_idle_agents(2)


def test_a_killed_trainer_is_a_failed_machine_and_the_job_is_tried_again(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.trainers_of("agent-1")[0].kill()
    assert_measured_once(farm, sweep_id)
    first, second = farm.attempts(farm.jobs(sweep_id)[0].id)
    assert first.state is AttemptState.LOST
    assert first.failure_kind == FailureKind.KILLED.value
    assert second.state is AttemptState.SUCCEEDED


def test_a_killed_agent_frees_its_peer_and_the_job_waits_for_a_whole_gang(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("agent-1")
    wait_until(lambda: not farm.trainers_of("agent-1"), "the dead agent's trainer is gone too")
    job = farm.wait_for_state(sweep_id, JobState.WAITING)
    assert farm.attempts(job.id)[0].state is AttemptState.LOST
    farm.wait_for_idle_agents(1)
    farm.start_agent(1)
    assert_measured_once(farm, sweep_id)


def test_a_stopped_agent_loses_its_lease_and_cannot_report_afterwards(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    job = farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("agent-1", signal.SIGSTOP)
    farm.wait_for_state(sweep_id, JobState.WAITING)
    farm.kill("agent-1", signal.SIGCONT)
    assert_measured_once(farm, sweep_id)
    assert farm.attempts(job.id)[0].state is AttemptState.LOST


def test_a_killed_scheduler_goes_on_where_it_was(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG, repetitions=2)
    farm.wait_for_state(sweep_id, JobState.LEASED)
    farm.kill("scheduler")
    farm.start_server("scheduler")
    assert_measured_once(farm, sweep_id)


def test_two_schedulers_do_not_get_into_each_others_way(farm: LiveFarm) -> None:
    farm.start_server("scheduler-2")
    sweep_id = farm.submit(strategy="single", world_size=1, repetitions=6)
    assert_measured_once(farm, sweep_id)
    assert all(len(farm.attempts(j.id)) == 1 for j in farm.jobs(sweep_id))


def test_a_killed_collector_loses_no_report(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("collector")
    farm.start_server("collector")
    assert_measured_once(farm, sweep_id)


def test_a_redis_that_comes_back_empty_loses_no_job(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG, repetitions=2)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.redis.kill()
    farm.redis.start()
    assert_measured_once(farm, sweep_id)


def test_a_frozen_redis_ends_in_a_retry_and_not_in_a_hang(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    job = farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.redis.freeze()
    wait_until(
        lambda: farm.attempts(job.id)[0].state is AttemptState.LOST,
        "the lease ran out without heartbeats",
    )
    wait_until(
        lambda: not farm.trainers_of("agent-1") and not farm.trainers_of("agent-2"),
        "agents without confirmation killed their ranks",
    )
    farm.redis.thaw()
    assert_measured_once(farm, sweep_id)


def test_cancelling_stops_the_trainers_and_frees_the_agents(farm: LiveFarm) -> None:
    sweep_id = farm.submit(steps=100_000)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    with writing(farm.engine) as session:
        request_cancel_sweep(session, sweep_id, now=dt.datetime.now(dt.UTC))
    (job,) = farm.wait_for_end(sweep_id)
    assert job.state is JobState.CANCELLED
    farm.wait_for_idle_agents(2)
    assert not farm.trainers_of("agent-1")
    assert farm.measurement_count(job.id) == 0


def test_a_failed_configuration_is_a_result_at_the_first_try(tmp_path: Path) -> None:
    trainer = {"FAKE_TRAINER": "fail:not_a_number"}
    with live_farm(tmp_path, agent_count=2, trainer=trainer) as farm:
        sweep_id = farm.submit()
        (job,) = farm.wait_for_end(sweep_id)
        assert job.state is JobState.FAILED
        assert job.failure_kind == FailureKind.NOT_A_NUMBER.value
        assert len(farm.attempts(job.id)) == 1
        assert farm.measurement_count(job.id) == 1


def test_stopping_the_farm_leaves_no_process(tmp_path: Path) -> None:
    with live_farm(tmp_path, agent_count=2, trainer=STEADY) as farm:
        sweep_id = farm.submit(steps=100_000)
        farm.wait_for_state(sweep_id, JobState.RUNNING)
    left = [
        " ".join(p.cmdline())
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or ())
        or any(str(tmp_path) in v for v in _environment(p).values())
    ]
    assert left == []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}
