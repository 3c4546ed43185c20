"""Every class of failure for real: real TensorFlow gangs on a whole farm, and what a user reads."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.trainer_lines import FailureKind, StepKind
from farm.store.engine import reading, writing
from farm.store.series.series import steps_of
from farm.store.sweeps.jobs import request_cancel_sweep, retry_job
from farm.store.tables import AttemptRow
from tests.e2e.live_farm import REPOSITORY, LiveFarm, live_farm, wait_until
from tests.machine.memory_group import limited_group

pytestmark = pytest.mark.alone

TENSORFLOW_S = 120.0  # for a job on cores that other tests may use as well
# A rank that TensorFlow keeps busy must not cost its agent the lease.
PATIENT = {"FARM_LEASE_S": "20", "FARM_PREPARE_TIMEOUT_S": "90", "FARM_START_TIMEOUT_S": "90"}
REAL = {"AGENT_TRAINER": f"{sys.executable} -P -m farm.trainers", "FARM_LEASE_S": "20"}
# TensorFlow's own heartbeats run out after 5 s and are looked at every few; then the gang's other
# ranks have 3 s to say what they saw.
NOTICED_WITHIN_S = 25.0
FREE_WITHIN_S = 15.0


def reckless(learning_rate: float) -> dict[str, str]:
    script = REPOSITORY / "tests" / "fakes" / "reckless_trainer.py"
    return {**REAL, "AGENT_TRAINER": f"{sys.executable} {script} {learning_rate}"}


@pytest.fixture(scope="module")
def real_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFarm]:
    """Two agents with real trainers."""
    home = tmp_path_factory.mktemp("farm")
    with live_farm(home, agent_count=2, trainer=REAL, server=PATIENT) as farm:
        yield farm


def first_end(farm: LiveFarm, job_id: int, *, within_s: float = TENSORFLOW_S) -> AttemptRow:
    """Wait until the first attempt of a job is over."""

    def ended() -> AttemptRow | None:
        first = farm.attempts(job_id)[0]
        return first if first.ended_at is not None else None

    attempt = wait_until(ended, f"the first attempt of job {job_id} is over", within_s=within_s)
    assert attempt is not None
    return attempt


def cancel(farm: LiveFarm, sweep_id: int) -> None:
    with writing(farm.engine) as session:
        request_cancel_sweep(session, sweep_id, now=dt.datetime.now(dt.UTC))
    farm.wait_for_end(sweep_id)
    farm.wait_for_idle_agents(2)


def train(farm: LiveFarm) -> tuple[int, int, tuple[str, str]]:
    """Let a gang of two train; return sweep, job and agents by rank once it is at its timed steps.

    Before those the ranks wait at barriers, where a stopped leader is not noticed by its peers
    but by its own agent.
    """
    sweep_id = farm.submit(steps=1_000_000)
    job_id = farm.jobs(sweep_id)[0].id

    def timed_token() -> int | None:
        attempts = farm.attempts(job_id)
        with reading(farm.engine) as session:
            chunks = steps_of(session, attempts[-1].id, rank=0) if attempts else []
        is_timed = any(chunk.kind is StepKind.TIMED for chunk in chunks)
        return attempts[-1].id if is_timed else None

    token = wait_until(timed_token, "the gang trains", within_s=TENSORFLOW_S)
    assert token is not None
    return sweep_id, job_id, (farm.agent_of(token, 0), farm.agent_of(token, 1))


@pytest.mark.tensorflow
def test_a_killed_rank_is_named_and_its_peers_complaint_does_not_hide_it(
    real_farm: LiveFarm,
) -> None:
    sweep_id, job_id, (_, second) = train(real_farm)
    [trainer] = real_farm.trainers_of(second)
    trainer.kill()
    attempt = first_end(real_farm, job_id)
    assert attempt.state is AttemptState.LOST
    assert attempt.failure_kind == FailureKind.KILLED.value
    assert attempt.reason == (
        f"rank 1 on {second}: trainer was ended by SIGKILL, sent by a user or a process of"
        " its machine"
    )
    cancel(real_farm, sweep_id)


@pytest.mark.tensorflow
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_is_named_within_seconds_and_the_gang_is_free(
    real_farm: LiveFarm, stopped: int
) -> None:
    sweep_id, job_id, agents = train(real_farm)
    [trainer] = real_farm.trainers_of(agents[stopped])
    trainer.suspend()
    attempt = first_end(real_farm, job_id, within_s=NOTICED_WITHIN_S)
    wait_until(lambda: not trainer.is_running(), "it is gone", within_s=FREE_WITHIN_S)
    assert attempt.state is AttemptState.LOST
    assert attempt.failure_kind == FailureKind.STALLED.value
    assert attempt.reason is not None
    assert attempt.reason.startswith(
        f"rank {stopped} on {agents[stopped]} stopped answering,"
        f" seen by rank {1 - stopped} on {agents[1 - stopped]}: "
    )
    cancel(real_farm, sweep_id)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("learning_rate", "kind", "reason"),
    [
        (
            1e8,
            FailureKind.NOT_A_NUMBER,
            r"train_loss: expected a finite number, got nan in step \d",
        ),
        (
            1e4,
            FailureKind.DIVERGED,
            r"train_loss rose from 2\.\d+ to \S+ by step 1\d: the training",
        ),
    ],
)
def test_a_training_that_goes_astray_is_a_result_with_its_reason(
    tmp_path: Path, learning_rate: float, kind: FailureKind, reason: str
) -> None:
    trainer = reckless(learning_rate)
    with live_farm(tmp_path, agent_count=2, trainer=trainer, server=PATIENT) as farm:
        sweep_id = farm.submit(model="mlp", global_batch_size=128, steps=10_000)
        [job] = farm.wait_for_end(sweep_id, within_s=TENSORFLOW_S)
        assert (job.state, job.failure_kind) == (JobState.FAILED, kind.value)
        assert re.match(rf"rank \d on agent-\d: {reason}", job.reason or "")
        assert len(farm.attempts(job.id)) == 1
        assert farm.measurement(job.id).status == kind.value
        farm.wait_for_idle_agents(2)


@pytest.mark.root
@pytest.mark.tensorflow
def test_a_trainer_that_outgrows_its_control_group_is_a_result_that_names_the_limit(
    tmp_path: Path,
) -> None:
    with (
        limited_group(1 << 30) as group,
        live_farm(tmp_path, agent_count=1, trainer=REAL, server=PATIENT) as farm,
    ):
        # The agent is in the group as well, as in a container; the kernel must take the trainer.
        agent = psutil.Process(farm.processes["agent-1"].pid)
        for process in (agent, *agent.children(recursive=True)):
            group.take(process.pid)
        sweep_id = farm.submit(
            strategy="single", world_size=1, dataset="synthetic_cifar10", global_batch_size=40_000
        )
        [job] = farm.wait_for_end(sweep_id, within_s=TENSORFLOW_S)
        assert (job.state, job.failure_kind) == (JobState.FAILED, FailureKind.OUT_OF_MEMORY.value)
        assert job.reason is not None
        assert job.reason.startswith("rank 0 on agent-1: killed by the kernel for lack of memory")
        assert "the control group's limit is 1.07 GB" in job.reason
        assert len(farm.attempts(job.id)) == 1
        assert farm.measurement(job.id).status == FailureKind.OUT_OF_MEMORY.value
        assert agent.is_running()
        farm.wait_for_idle_agents(1)


@pytest.fixture
def unequal_farm(tmp_path: Path) -> Iterator[LiveFarm]:
    """Two agents that load data as real trainers do; only the first has MNIST's file."""
    with live_farm(tmp_path, agent_count=0) as farm:
        for number in (1, 2):
            data_dir = tmp_path / f"data-{number}"
            data_dir.mkdir()
            offline = {"HTTPS_PROXY": "http://127.0.0.1:1", "HOME": str(tmp_path)}
            trainer = {"FAKE_TRAINER": "load", "FARM_DATA_DIR": str(data_dir), **offline}
            farm.start_agent(number, trainer=trainer)
        write_mnist(tmp_path / "data-1")
        farm.wait_for_idle_agents(2)
        yield farm


def write_mnist(folder: Path) -> None:
    """Write images of MNIST's number and shape, all black."""
    np.savez_compressed(
        folder / "mnist.npz",
        x_train=np.zeros((60_000, 28, 28), np.uint8),
        y_train=np.zeros(60_000, np.uint8),
        x_test=np.zeros((10_000, 28, 28), np.uint8),
        y_test=np.zeros(10_000, np.uint8),
    )


def test_a_data_set_that_one_agent_of_a_gang_lacks_is_named_with_its_remedy(
    unequal_farm: LiveFarm,
) -> None:
    farm = unequal_farm
    sweep_id = farm.submit(dataset="mnist", global_batch_size=64)
    [job] = farm.wait_for_end(sweep_id)
    assert (job.state, job.failure_kind) == (JobState.FAILED, FailureKind.DATASET_MISSING.value)
    lacking = farm.home / "data-2"
    assert re.match(r"rank \d on agent-2: data set mnist is in none of ", job.reason or "")
    assert f"{lacking}, {farm.home / '.keras' / 'datasets'}; " in (job.reason or "")
    assert f"'curl -fLo {lacking}/mnist.npz https://" in (job.reason or "")
    # Refused before go, every time: nothing had started.
    assert {a.started_at for a in farm.attempts(job.id)} == {None}
    assert farm.measurement_count(job.id) == 0
    farm.wait_for_idle_agents(2)
    write_mnist(lacking)
    with writing(farm.engine) as session:
        retry_job(session, job.id, now=dt.datetime.now(dt.UTC))
    assert farm.wait_for_state(sweep_id, JobState.SUCCEEDED).id == job.id


def test_a_job_whose_agent_lacks_the_data_is_tried_again_on_another(
    unequal_farm: LiveFarm,
) -> None:
    farm = unequal_farm
    # Both agents are idle, so that each gets one of the two first.
    sweep_id = farm.submit(
        dataset="mnist", strategy="single", world_size=1, global_batch_size=64, repetitions=2
    )
    jobs = farm.wait_for_end(sweep_id)
    assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 2, farm.story(sweep_id)
    ends = [farm.attempts(job.id) for job in jobs]
    lost = [a for attempts in ends for a in attempts[:-1]]
    assert {a.failure_kind for a in lost} == {FailureKind.DATASET_MISSING.value}
    assert {farm.agent_of(a.id, 0) for a in lost} == {"agent-2"}
    assert {farm.agent_of(attempts[-1].id, 0) for attempts in ends} == {"agent-1"}


def test_a_gang_of_two_framework_versions_is_refused_before_go(tmp_path: Path) -> None:
    with live_farm(tmp_path, agent_count=0) as farm:
        farm.start_agent(1)
        farm.start_agent(2, trainer={"FAKE_TRAINER": "framework:fake 0.9"})
        farm.wait_for_idle_agents(2)
        sweep_id = farm.submit()
        [job] = farm.wait_for_end(sweep_id)
        assert job.failure_kind == FailureKind.VERSIONS_DIFFER.value
        assert sorted(re.findall(r"on (agent-\d) has (fake \d\.\d)", job.reason or "")) == [
            ("agent-1", "fake 1.0"),
            ("agent-2", "fake 0.9"),
        ]
        attempts = farm.attempts(job.id)
        assert {a.state for a in attempts} == {AttemptState.LOST}
        assert {a.started_at for a in attempts} == {None}
        farm.wait_for_idle_agents(2)
