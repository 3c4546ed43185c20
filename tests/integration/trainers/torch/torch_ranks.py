"""Runs engines of PyTorch, each in a process of its own, without a farm around them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from farm import registry
from farm.configuration.catalogue import ModelFacts
from farm.configuration.spec import JobSpec
from farm.messages.trainer_lines import GoLine
from farm.trainers.contracts import Evaluation, Model, RankContext, WeightSums
from farm.trainers.loop.batches import share
from farm.trainers.models.architecture import Architecture
from farm.trainers.models.layers import Layers, T
from tests.integration.trainer_process import free_ports

DEADLINE_S = 240.0


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
    settings: Mapping[str, object] = field(default_factory=dict)
    again: tuple[float, ...] = ()  # the losses after the first weights were restored
    messages: tuple[str, ...] = ()  # of a full step, their kinds in order of their begin


def model_of(job: JobSpec) -> Model:
    return WIDE if job.model == "wide" else registry.model(job.model)


def rank_context(job: JobSpec, rank: int, ports: Sequence[int]) -> RankContext:
    dataset = registry.dataset(job.dataset)
    return RankContext(
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
    has_whole_batch = registry.strategy(job.strategy).facts.splits_layers
    mine = range(count) if has_whole_batch else share(count, world_size=job.world_size, rank=rank)
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
    engine: Any = registry.strategy(job.strategy).build(rank_context(job, rank, ports))
    initial = engine.save()
    # Uneven over two ranks, nothing for the second, and fewer than there are parts.
    full = job.global_batch_size
    batches = (full, full, 1, 3, full)
    losses = tuple(step(engine, job, rank, count) for count in batches)
    sums, evaluation = engine.weight_sums(), evaluated(engine)
    engine.restore(initial)
    again = tuple(step(engine, job, rank, count) for count in batches)
    held = [w.to_local() if hasattr(w, "to_local") else w for w in initial[0].values()]
    came = Came(
        losses=losses,
        sums=sums,
        evaluation=evaluation,
        held_count=sum(w.numel() for w in held),
        settings=engine.settings,
        again=again,
    )
    engine.leave()
    return came


def count_messages(job: JobSpec, rank: int, ports: Sequence[int]) -> Came:
    """Be one rank that counts the collectives of a step."""
    import torch

    torch.set_num_threads(1)
    engine: Any = registry.strategy(job.strategy).build(rank_context(job, rank, ports))
    count = job.global_batch_size
    step(engine, job, rank, count)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        loss = step(engine, job, rank, count)
    events = sorted(profiler.events() or (), key=lambda event: event.time_range.start)
    messages = tuple(event.name for event in events if event.name.startswith("gloo:"))
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
