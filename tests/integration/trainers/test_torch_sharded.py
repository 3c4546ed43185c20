"""Ranks of PyTorch that hold shards of one model, against one rank that holds all of it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from farm import registry
from farm.configuration.catalogue import GangShape, ModelFacts
from farm.configuration.spec import JobSpec, TrainingPass
from farm.messages.trainer_lines import GoLine
from farm.trainers.contracts import Evaluation, Model, Seat, WeightSums
from farm.trainers.loop.batches import share
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T
from tests.integration.trainer_process import free_ports

pytestmark = pytest.mark.torch

DEADLINE_S = 240.0
JOB = JobSpec(
    model="wide",
    dataset="digits",
    strategy="torch_fsdp",
    world_size=2,
    global_batch_size=65,
    steps=1,
)
ALONE = replace(JOB, strategy="torch_ddp", world_size=1)
# Uneven over two ranks, nothing for the second, and fewer than there are parts.
BATCHES = (65, 65, 1, 3, 65)


def _lay_out(layers: Layers[T], image: T, class_count: int) -> T:
    x = layers.dense(layers.flatten(image), 2600, is_rectified=True)
    x = layers.dense(x, 2600, is_rectified=True)
    return layers.dense(layers.dense(x, 33, is_rectified=True), class_count)


WIDE = Architecture(facts=ModelFacts(name="wide", summary="two units of 28 MB"), lay_out=_lay_out)


@dataclass(frozen=True, kw_only=True)
class Came:
    """What a rank came to."""

    losses: tuple[float, ...]
    sums: WeightSums
    evaluation: Evaluation
    held_count: int = 0  # numbers of the weights that the rank holds
    again: tuple[float, ...] = ()  # the losses after the first weights were restored
    messages: int = 0  # of one step of a full batch


def model_of(job: JobSpec) -> Model:
    return WIDE if job.model == "wide" else registry.model(job.model)


def seat(job: JobSpec, rank: int, ports: Sequence[int]) -> Seat:
    dataset = registry.dataset(job.dataset)
    return Seat(
        job=job,
        rank=rank,
        role="worker",
        go=GoLine(cluster={"worker": tuple(f"127.0.0.1:{p}" for p in ports)}, task_index=rank),
        model=model_of(job),
        dataset=dataset.facts,
        data=dataset.load(()),
        peer_timeout_s=60.0,
    )


def step(engine: Any, job: JobSpec, rank: int, count: int) -> float:
    mine = share(count, world_size=job.world_size, rank=rank)
    loss: float = engine.step(np.arange(count, dtype=np.int32)[mine], examples_count=count)
    return loss


def evaluated(engine: Any) -> Evaluation:
    engine.prepare_evaluation()
    found: Evaluation = engine.evaluate(lambda: None)
    return found


def train(job: JobSpec, rank: int, ports: Sequence[int]) -> Came:
    """Be one rank, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    engine: Any = registry.strategy(job.strategy).build(seat(job, rank, ports))
    initial = engine.save()
    losses = tuple(step(engine, job, rank, count) for count in BATCHES)
    sums, evaluation = engine.weight_sums(), evaluated(engine)
    engine.restore(initial)
    again = tuple(step(engine, job, rank, count) for count in BATCHES)
    held = [w.to_local() if hasattr(w, "to_local") else w for w in initial[0].values()]
    came = Came(
        losses=losses,
        sums=sums,
        evaluation=evaluation,
        held_count=sum(w.numel() for w in held),
        again=again,
    )
    engine.leave()
    return came


def count_messages(job: JobSpec, rank: int, ports: Sequence[int]) -> Came:
    """Be one rank that counts the collectives of a step."""
    import torch

    torch.set_num_threads(1)
    engine: Any = registry.strategy(job.strategy).build(seat(job, rank, ports))
    count = job.global_batch_size
    step(engine, job, rank, count)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        loss = step(engine, job, rank, count)
    messages = sum(event.name.startswith("gloo:") for event in profiler.events() or ())
    came = Came(
        losses=(loss,),
        sums=engine.weight_sums(),
        evaluation=evaluated(engine),
        messages=messages,
    )
    engine.leave()
    return came


def ranks(job: JobSpec, run: Callable[[JobSpec, int, Sequence[int]], Came] = train) -> list[Came]:
    """Return what the ranks of a job came to, each in a process of its own."""
    ports = free_ports(job.world_size)
    with multiprocessing.get_context("spawn").Pool(job.world_size) as pool:
        given = [(job, rank, ports) for rank in range(job.world_size)]
        return pool.starmap_async(run, given, chunksize=1).get(DEADLINE_S)


@pytest.fixture(scope="module")
def alone() -> Came:
    (came,) = ranks(ALONE)
    return came


@pytest.mark.parametrize(("world_size", "parts"), [(2, 1), (3, 4)])
def test_ranks_that_hold_shards_learn_what_one_with_all_weights_does(
    alone: Came, world_size: int, parts: int
) -> None:
    came = ranks(replace(JOB, world_size=world_size, axes={"gradient_accumulation_steps": parts}))
    for k, loss in enumerate(alone.losses):
        assert sum(rank.losses[k] for rank in came) == pytest.approx(loss, rel=1e-4)
    for rank in came:
        assert rank.sums.total == pytest.approx(alone.sums.total, rel=1e-5)
        assert rank.sums.total_of_squares == pytest.approx(alone.sums.total_of_squares, rel=1e-5)
        assert rank.evaluation.val_loss == pytest.approx(alone.evaluation.val_loss, rel=1e-4)
        assert rank.evaluation.val_accuracy_ratio == alone.evaluation.val_accuracy_ratio
        assert rank.again == rank.losses
        assert rank.held_count == pytest.approx(alone.held_count / world_size, rel=0.01)


def test_a_forward_pass_gathers_the_weights_and_changes_nothing(alone: Came) -> None:
    came = ranks(replace(JOB, training_pass=TrainingPass.FORWARD))
    (one,) = ranks(replace(ALONE, training_pass=TrainingPass.FORWARD))
    for rank in came:
        assert rank.sums.total == pytest.approx(one.sums.total, rel=1e-12)
        assert rank.sums.total != alone.sums.total
    assert sum(rank.losses[0] for rank in came) == pytest.approx(one.losses[0], rel=1e-5)


@pytest.mark.parametrize(
    ("model", "dataset", "parts"), [("wide", "digits", 2), ("gpt2_tiny", "synthetic_tokens", 1)]
)
def test_a_step_has_the_messages_that_theory_says(model: str, dataset: str, parts: int) -> None:
    job = replace(
        JOB,
        model=model,
        dataset=dataset,
        global_batch_size=4,
        axes={"gradient_accumulation_steps": parts},
    )
    facts = registry.dataset(dataset).facts
    size = model_of(job).describe(facts.example_shape, facts.class_count)
    assert size is not None
    assert len(size.unit_bytes) == 2  # of gpt2_tiny its layers and its tables
    shape = GangShape(
        world_size=2, gradient_accumulation_steps=parts, unit_count=len(size.unit_bytes)
    )
    expected = registry.strategy("torch_fsdp").traffic(shape, size.gradient_bytes).messages
    for rank in ranks(job, count_messages):
        assert rank.messages == expected
