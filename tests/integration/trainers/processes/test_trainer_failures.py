"""Real trainers that run out of memory: what they say of it, and whom the kernel is to take."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import Assignment, Failure, FailureKind, Ready
from farm.trainers.processes.process import EXIT_FAILED
from tests.fakes.server import wait_until
from tests.integration.trainer_process import TrainerProcess, go, started
from worker_agent.rank.memory_evidence import MemoryEvidence
from worker_agent.rank.rank_end import failure_of_exit

JOB = JobSpec(
    model="small_cnn",
    dataset="synthetic_mnist",
    strategy="single",
    world_size=1,
    global_batch_size=60_000,
    steps=5,
    warmup_step_count=1,
)
MIB = 1 << 20


def limit_data(trainer: TrainerProcess, *, more_bytes: int) -> None:
    """Let a trainer have so much more private memory than it has now, and nothing above."""
    pid = trainer.process.pid
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmData:")
    ]
    limit = int(line.split()[1]) * 1024 + more_bytes
    resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


@pytest.mark.tensorflow
def test_a_batch_that_tensorflow_cannot_allocate_is_out_of_memory(tmp_path: Path) -> None:
    with started(JOB, tmp_path) as trainers:
        [trainer] = trainers
        trainer.wait_for(Ready)
        # Enough for the examples and the weights; the first activation alone takes gigabytes.
        limit_data(trainer, more_bytes=1000 * MIB)
        go(trainers)
        return_code = trainer.exit_code()
    # It raises, or it crashes, as TensorFlow 2.21 does here; then its agent has its log.
    failures = [event for event in trainer.arrived() if isinstance(event, Failure)]
    failure = (
        failures[0]
        if failures
        else failure_of_exit(return_code, memory=MemoryEvidence(), log_tail=trainer.log.read_text())
    )
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert "OOM when allocating tensor with shape[60000," in failure.message


@pytest.mark.parametrize(
    "strategy", [pytest.param("single", marks=pytest.mark.tensorflow), "torch_ddp"]
)
def test_a_rank_that_was_to_train_on_a_gpu_and_sees_none_says_so(
    tmp_path: Path, strategy: str
) -> None:
    job = replace(JOB, strategy=strategy, axes={"device": "gpu"})
    cpus = (min(os.sched_getaffinity(0)),)
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=job, rank=0, cpus=cpus, gpus=()))
        trainer.wait_for(Ready)
        go([trainer])
        failure = trainer.wait_for(Failure)
        assert trainer.exit_code() == EXIT_FAILED
    assert failure.kind is FailureKind.TRAINER_RAISED
    assert "device: expected a GPU, and t" in failure.message


def test_a_data_set_that_python_cannot_hold_is_out_of_memory(tmp_path: Path) -> None:
    job = replace(JOB, dataset="synthetic_cifar10")  # of 147 MiB
    cpus = (min(os.sched_getaffinity(0)),)
    with TrainerProcess(tmp_path / "log") as trainer:
        limit_data(trainer, more_bytes=120 * MIB)
        trainer.write(Assignment(job=job, rank=0, cpus=cpus))
        failure = trainer.wait_for(Failure)
        assert trainer.exit_code() == EXIT_FAILED
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert "MemoryError: Unable to allocate" in failure.message


def test_the_kernel_takes_a_trainer_before_its_agent(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as trainer:
        score = Path(f"/proc/{trainer.process.pid}/oom_score_adj")
        wait_until(lambda: int(score.read_text()) == 500, "a score above its agent's")
