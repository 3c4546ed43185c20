"""Parameter servers and their kin, as real processes: mathematics, bytes, and ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec, ServerPlacement, TrainingPass
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    Failure,
    FailureKind,
    GoLine,
    Ready,
    Started,
    Steps,
    TrainerResult,
)
from farm.trainers.processes.process import EXIT_FAILED
from tests.integration.trainer_process import TrainerProcess, free_ports, gang, results

pytestmark = [pytest.mark.tensorflow, pytest.mark.alone]

# 1437 = 3 * 381 + 294: every fourth step is partial, and both sizes are uneven over two ranks.
SINGLE = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=381,
    steps=15,
    warmup_step_count=2,
)
PS_SYNC = replace(SINGLE, strategy="ps_sync", world_size=2, server_count=1)
PS_ASYNC = replace(PS_SYNC, strategy="ps_async")
REPLICATED = replace(PS_SYNC, strategy="replicated", server_count=2)
CENTRAL_REDUCE = replace(PS_SYNC, strategy="central_reduce", server_count=0)
ENDLESS = 1_000_000
UPDATE_COUNT = 2 + 15 + 5  # warm-up, full and partial steps


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> TrainerResult:
    with gang(SINGLE, tmp_path_factory.mktemp("single")) as trainers:
        return results(trainers)[0]


@pytest.mark.parametrize(
    "job",
    [
        replace(PS_SYNC, server_placement=ServerPlacement.APART),
        REPLICATED,
        replace(CENTRAL_REDUCE, world_size=3),
    ],
    ids=lambda job: job.strategy,
)
def test_synchronous_ranks_train_as_one_machine_does(
    job: JobSpec, alone: TrainerResult, tmp_path: Path
) -> None:
    """After 22 updates the weights differ by the order of summation, and by nothing else.

    Positive and negative weights cancel in their sum, so rounding shows ten times as much in it.
    """
    with gang(job, tmp_path) as trainers:
        ended = results(trainers)[: job.world_size]
    for result in ended:
        for key, tolerance in (("weights_sum", 1e-4), ("weights_square_sum", 1e-5)):
            assert result.details[key] == pytest.approx(alone.details[key], rel=tolerance)
        assert result.exchange is not None
        assert result.exchange.update_count == result.timed_step_count == 15
        assert result.exchange.staleness_counts is None
        assert result.profile is not None
        assert 0.0 < result.profile.communication_s < result.profile.step_time_s
    gradient_bytes = trainers[0].seen(Started)[0].gradient_bytes
    assert gradient_bytes is not None
    # Rank 0 of a central reduction sends to all others and receives from each.
    is_central = job.strategy == "central_reduce"
    times = (job.world_size - 1, 1, 1) if is_central else (1, 1)
    for result, count in zip(ended, times, strict=True):
        assert_each_gradient_passed_once(result, count * gradient_bytes)
    assert ended[0].val_accuracy_ratio == pytest.approx(alone.val_accuracy_ratio, abs=0.01)
    assert not any(isinstance(e, Failure) for t in trainers for _, e in t.events)


def assert_each_gradient_passed_once(result: TrainerResult, expected_bytes: float) -> None:
    """Hold what a rank sent and received in a step against theory.

    TensorFlow adds some 200 bytes for each tensor and 500 for each run.
    """
    for payload in (result.payload_tx_bytes, result.payload_rx_bytes):
        assert payload is not None
        assert payload / result.window_step_count == pytest.approx(expected_bytes, rel=0.03)


def test_asynchronous_ranks_say_how_stale_their_updates_were(tmp_path: Path) -> None:
    with gang(replace(PS_ASYNC, steps=60, warmup_step_count=1), tmp_path) as trainers:
        ended = results(trainers)[:2]
    gradient_bytes = trainers[0].seen(Started)[0].gradient_bytes
    assert gradient_bytes is not None
    for result in ended:
        assert_each_gradient_passed_once(result, gradient_bytes)
        assert result.exchange is not None
        assert result.exchange.push_s is not None
        assert result.exchange.pull_s is not None
        assert min(result.exchange.push_s, result.exchange.pull_s) > 0.0
        counts = result.exchange.staleness_counts
        assert counts is not None
        assert sum(counts) == result.exchange.update_count == result.timed_step_count
        assert sum(counts[1:]) > 0  # two ranks at once must cross now and then


@pytest.mark.parametrize("job", [PS_ASYNC, CENTRAL_REDUCE], ids=lambda job: job.strategy)
def test_epochs_begin_from_the_initial_weights_and_may_end_with_an_empty_share(
    job: JobSpec, tmp_path: Path
) -> None:
    # 1437 = 4 * 359 + 1: the last step of each epoch has one example, and rank 1 has none.
    job = replace(job, steps=None, epochs=2, global_batch_size=359, warmup_step_count=60)
    with gang(job, tmp_path) as trainers:
        ended = results(trainers)[:2]
    assert ended[0].details["weights_sum"] == ended[1].details["weights_sum"]
    epochs = trainers[0].seen(Epoch)
    assert [epoch.step_count for epoch in epochs] == [5, 5]
    # What the warm-up has learnt would show: the logarithm of ten classes is 2.30.
    assert epochs[0].train_loss == pytest.approx(2.29, abs=0.03)
    assert epochs[1].val_accuracy_ratio is not None
    assert ended[0].val_accuracy_ratio == epochs[1].val_accuracy_ratio
    assert all(epoch.val_accuracy_ratio is None for epoch in trainers[1].seen(Epoch))


def test_a_forward_pass_pulls_and_pushes_nothing(tmp_path: Path) -> None:
    job = replace(PS_ASYNC, training_pass=TrainingPass.FORWARD, global_batch_size=64)
    with gang(job, tmp_path) as trainers:
        ended = results(trainers)[:2]
    gradient_bytes = trainers[0].seen(Started)[0].gradient_bytes
    assert gradient_bytes is not None
    for result in ended:
        assert result.exchange is not None
        assert result.exchange.update_count == 0
        assert result.payload_tx_bytes is not None
        assert result.payload_rx_bytes is not None
        assert result.payload_tx_bytes / result.window_step_count < 0.03 * gradient_bytes
        assert result.payload_rx_bytes / result.window_step_count == pytest.approx(
            gradient_bytes, rel=0.03
        )


@pytest.mark.parametrize(
    ("job", "victim", "blow"),
    [
        (PS_SYNC, 1, signal.SIGKILL),
        (PS_ASYNC, 0, signal.SIGSTOP),
        (REPLICATED, 2, signal.SIGSTOP),
        (CENTRAL_REDUCE, 0, signal.SIGSTOP),
    ],
    ids=["rank killed", "chief stopped", "server stopped", "weight host stopped"],
)
def test_the_loss_of_a_process_ends_all_others(
    job: JobSpec, victim: int, blow: signal.Signals, tmp_path: Path
) -> None:
    with gang(replace(job, steps=ENDLESS), tmp_path) as trainers:
        for trainer in trainers[:2]:
            trainer.wait_for(Steps)
        trainers[victim].process.send_signal(blow)
        begun = time.monotonic()
        for trainer in trainers:
            if trainer is not trainers[victim]:
                failure = trainer.wait_for(Failure)
                assert failure.kind is FailureKind.PEER_LOST
                assert "\n" not in failure.message
                assert trainer.exit_code() == EXIT_FAILED
        assert time.monotonic() - begun < 15.0


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_whoever_is_alone_ends_within_the_limit(role: str, tmp_path: Path) -> None:
    cpus = (min(os.sched_getaffinity(0)),)
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=PS_SYNC, rank=0, role=role, cpus=cpus, peer_timeout_s=2.0))
        trainer.wait_for(Ready)
        ports = free_ports(3)
        workers = tuple(f"127.0.0.1:{port}" for port in ports[:2])
        cluster = {"worker": workers, "ps": (f"127.0.0.1:{ports[2]}",)}
        trainer.write(GoLine(cluster=cluster, task_index=0))
        begun = time.monotonic()
        assert trainer.wait_for(Failure).kind is FailureKind.PEER_LOST
        assert time.monotonic() - begun < 10.0


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_a_taken_port_is_named(role: str, tmp_path: Path) -> None:
    cpus = (min(os.sched_getaffinity(0)),)
    with TrainerProcess(tmp_path / "log") as trainer, socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = f"127.0.0.1:{squatter.getsockname()[1]}"
        trainer.write(Assignment(job=PS_SYNC, rank=0, role=role, cpus=cpus))
        trainer.wait_for(Ready)
        free = [f"127.0.0.1:{port}" for port in free_ports(2)]
        cluster = {"worker": (taken, free[0]), "ps": (free[1],)}
        if role == "ps":
            cluster = {"worker": (free[0], free[1]), "ps": (taken,)}
        trainer.write(GoLine(cluster=cluster, task_index=0))
        failure = trainer.wait_for(Failure)
        assert failure.kind is FailureKind.PORT_TAKEN
        assert taken.rpartition(":")[2] in failure.message
