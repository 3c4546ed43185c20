"""Ranks of PyTorch as their agents see them: real processes, spoken to by lines alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec, TrainingPass
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    Exchange,
    Failure,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    Started,
    StepKind,
    Steps,
)
from farm.trainers.processes.process import EXIT_FAILED
from farm.trainers.strategies.torch.ddp import TorchDdp
from tests.integration.trainer_process import TrainerProcess, free_ports, gang, go, results

pytestmark = [pytest.mark.torch, pytest.mark.alone]

PARAMETER_COUNT = 72_842
MLP_PARAMETER_COUNT = 9_610
# 1437 = 3 * 381 + 294: every fourth step is partial, and both sizes are uneven over two ranks.
ALONE = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="torch_ddp",
    world_size=1,
    global_batch_size=381,
    steps=16,
    warmup_step_count=2,
)
PAIR = replace(ALONE, world_size=2)
LONG = replace(PAIR, steps=1_000_000, global_batch_size=64)


@contextlib.contextmanager
def pair(job: JobSpec, folder: Path, *, peer_timeout_s: float) -> Iterator[list[TrainerProcess]]:
    """Start two ranks that wait for each other no longer than that; they are ready for go."""
    cpus = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        trainers = []
        for rank in range(2):
            trainer = stack.enter_context(TrainerProcess(folder / f"rank{rank}.log"))
            cpu = (cpus[rank % len(cpus)],)
            trainer.write(Assignment(job=job, rank=rank, cpus=cpu, peer_timeout_s=peer_timeout_s))
            trainers.append(trainer)
        for trainer in trainers:
            trainer.wait_for(Ready)
        yield trainers


def test_two_ranks_train_as_one_does_and_send_what_a_ring_must(tmp_path: Path) -> None:
    # A model without max pooling: over the digits' blank borders its maxima are ties, which
    # rounding breaks, another way on another processor, and the gradient goes to another pixel.
    (tmp_path / "alone").mkdir()
    with gang(replace(ALONE, model="mlp"), tmp_path / "alone") as trainers:
        (alone,) = results(trainers)
        assert trainers[0].seen(Ready)[0].framework.startswith("torch 2.")
        assert trainers[0].seen(Started)[0].parameter_count == MLP_PARAMETER_COUNT
    assert alone.payload_tx_bytes == 0
    assert alone.profile is not None
    assert alone.profile.communication_s == 0.0

    with gang(replace(PAIR, model="mlp"), tmp_path) as trainers:
        both = results(trainers)
    assert both[0].details["weights_sum"] == both[1].details["weights_sum"]
    for result in both:
        # The order of summation differs, nothing else: float32 over 22 updates, five of them
        # after batches of other sizes.
        for key in ("weights_sum", "weights_square_sum"):
            assert result.details[key] == pytest.approx(alone.details[key], rel=1e-5)
        assert result.exchange == Exchange(update_count=result.timed_step_count)
        assert result.profile is not None
        assert 0.0 < result.profile.communication_s < result.profile.step_time_s
        sent = TorchDdp().traffic(GangShape(world_size=2), MLP_PARAMETER_COUNT * 4).bytes
        assert result.payload_tx_bytes is not None
        assert result.payload_tx_bytes / result.window_step_count == pytest.approx(sent, rel=0.1)
    assert both[0].val_accuracy_ratio == pytest.approx(alone.val_accuracy_ratio, abs=0.01)
    assert both[1].val_accuracy_ratio is None


def test_a_batch_in_parts_is_exchanged_once(tmp_path: Path) -> None:
    job = replace(PAIR, model="mlp")
    (tmp_path / "whole").mkdir()
    with gang(job, tmp_path / "whole") as trainers:
        whole = results(trainers)
    with gang(replace(job, axes={"gradient_accumulation_steps": 4}), tmp_path) as trainers:
        parts = results(trainers)
    for mine, theirs in zip(parts, whole, strict=True):
        for key in ("weights_sum", "weights_square_sum"):
            assert mine.details[key] == pytest.approx(theirs.details[key], rel=1e-5)
        assert mine.payload_tx_bytes == pytest.approx(theirs.payload_tx_bytes, rel=0.02)


def test_small_buckets_sum_and_send_the_same(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    with gang(PAIR, tmp_path / "whole") as trainers:
        whole = results(trainers)
    with gang(replace(PAIR, axes={"gradient_bucket_bytes": 65_536.0}), tmp_path) as trainers:
        parts = results(trainers)
    for mine, theirs in zip(parts, whole, strict=True):
        for key in ("weights_sum", "weights_square_sum"):
            assert mine.details[key] == pytest.approx(theirs.details[key], rel=1e-5)
        assert mine.payload_tx_bytes is not None
        assert theirs.payload_tx_bytes is not None
        # What announces each message, 0.6 % here, is all that comes on top.
        assert theirs.payload_tx_bytes < mine.payload_tx_bytes < 1.02 * theirs.payload_tx_bytes


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_two_ranks_whose_model_is_compiled_train_and_send_the_same(tmp_path: Path) -> None:
    job = replace(PAIR, model="mlp")
    (tmp_path / "plain").mkdir()
    with gang(job, tmp_path / "plain") as trainers:
        plain = results(trainers)
    with gang(replace(job, axes={"compile": "torch_compile"}), tmp_path) as trainers:
        compiled = results(trainers)
    for mine, theirs in zip(compiled, plain, strict=True):
        for key in ("weights_sum", "weights_square_sum"):
            assert mine.details[key] == pytest.approx(theirs.details[key], rel=1e-5)
        assert mine.payload_tx_bytes == pytest.approx(theirs.payload_tx_bytes, rel=0.02)
        assert mine.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)


def test_epochs_have_a_last_step_smaller_than_the_gang(tmp_path: Path) -> None:
    # 1437 = 4 * 359 + 1: the last step of each epoch has one example, and rank 1 has none.
    job = replace(PAIR, steps=None, epochs=2, global_batch_size=359)
    with gang(job, tmp_path) as trainers:
        leader, follower = results(trainers)
    assert leader.details["weights_sum"] == follower.details["weights_sum"]
    assert [e.step_count for e in trainers[1].seen(Epoch)] == [5, 5]
    assert all(e.val_accuracy_ratio is None for e in trainers[1].seen(Epoch))
    assert all(e.val_accuracy_ratio is not None for e in trainers[0].seen(Epoch))


def test_a_forward_pass_sends_nothing(tmp_path: Path) -> None:
    job = replace(PAIR, training_pass=TrainingPass.FORWARD, global_batch_size=64, steps=50)
    with gang(job, tmp_path) as trainers:
        for result in results(trainers):
            assert result.profile is None
            assert result.payload_tx_bytes is not None
            assert result.payload_tx_bytes / 50 < 0.01 * PARAMETER_COUNT


@pytest.mark.parametrize(
    "strategy",
    [
        "torch_ddp",
        *(pytest.param(s, marks=pytest.mark.slow) for s in ("torch_fsdp", "torch_pipeline")),
    ],
)
def test_the_death_of_a_peer_is_noticed_and_named(strategy: str, tmp_path: Path) -> None:
    with gang(replace(LONG, strategy=strategy), tmp_path) as (leader, follower):
        for trainer in (leader, follower):
            trainer.wait_for(Progress)  # well within the timed steps
        leader.process.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        failure = follower.wait_for(Failure)
        assert time.monotonic() - begun < 5.0
        assert failure.kind is FailureKind.PEER_LOST
        assert re.search(r"Connection (closed|reset) by peer", failure.message)
        assert "typically" not in failure.message
        assert "\n" not in failure.message
        assert follower.exit_code() == EXIT_FAILED


@pytest.mark.slow
def test_the_death_of_a_stage_in_the_middle_is_noticed_on_both_sides(tmp_path: Path) -> None:
    job = replace(LONG, strategy="torch_pipeline", world_size=3, model="small_cnn")
    with gang(job, tmp_path) as (first, middle, last):
        for trainer in (first, middle, last):
            trainer.wait_for(Progress)
        middle.process.send_signal(signal.SIGKILL)
        for trainer in (first, last):
            assert trainer.wait_for(Failure).kind is FailureKind.PEER_LOST


def test_a_leader_that_dies_while_others_wait_for_it_is_noticed(tmp_path: Path) -> None:
    # The evaluation of 10,000 examples takes the leader a second or two.
    job = replace(PAIR, dataset="synthetic_cifar10", global_batch_size=64, steps=3)
    with gang(job, tmp_path) as (leader, follower):
        while leader.wait_for(Steps).kind is not StepKind.TIMED:
            pass
        leader.process.send_signal(signal.SIGSTOP)
        while follower.wait_for(Steps).kind is not StepKind.TIMED:
            pass
        follower.wait_for(Progress, timeout_s=10.0)  # waiting is a sign of life
        leader.process.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        assert follower.wait_for(Failure).kind is FailureKind.PEER_LOST
        assert time.monotonic() - begun < 5.0


def test_a_peer_that_stops_ends_the_step_within_the_limit(tmp_path: Path) -> None:
    with pair(LONG, tmp_path, peer_timeout_s=4.0) as (leader, follower):
        go([leader, follower])
        leader.wait_for(Progress)
        follower.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert leader.wait_for(Failure).kind is FailureKind.PEER_LOST
        assert time.monotonic() - begun < 15.0


def test_a_rank_that_is_many_steps_behind_is_waited_for(tmp_path: Path) -> None:
    # One rank has nearly all examples, so that the other comes to the average long before it.
    job = replace(PAIR, strategy="torch_local_sgd", steps_between_averages=60, steps=60)
    job = replace(job, global_batch_size=1437, warmup_step_count=0)
    with pair(job, tmp_path, peer_timeout_s=3.0) as trainers:
        go(trainers, batch_weights=(0.99, 0.01))
        slow, fast = results(trainers)
        behind_s = sum(trainers[0].step_times_s(StepKind.TIMED)[:-1])
    assert behind_s > 3.0
    assert slow.details["weights_sum"] == fast.details["weights_sum"]


def test_a_taken_port_and_a_leader_that_never_comes_are_no_fault_of_the_configuration(
    tmp_path: Path,
) -> None:
    with pair(PAIR, tmp_path, peer_timeout_s=3.0) as trainers, socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        squatted = squatter.getsockname()[1]
        nobody, another = free_ports(2)
        for rank, port in enumerate((squatted, nobody)):
            addresses = (f"127.0.0.1:{port}", f"127.0.0.1:{another}")
            trainers[rank].write(GoLine(cluster={"worker": addresses}, task_index=rank))
        taken, alone = (trainer.wait_for(Failure) for trainer in trainers)
    assert taken.kind is FailureKind.PORT_TAKEN
    assert str(squatted) in taken.message
    assert alone.kind is FailureKind.PEER_LOST
