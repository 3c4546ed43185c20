"""Which examples each rank takes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.trainers.loop.batches import StepBatch, endless_steps, epoch_order, epoch_steps, share

world_sizes = st.integers(1, 9)
counts = st.integers(1, 60)


def job(*, batch: int, world_size: int = 1, seed: int = 0, repeat: bool = False) -> JobSpec:
    return JobSpec(
        model="mlp",
        dataset="digits",
        strategy="mwms_ring",
        world_size=world_size,
        global_batch_size=max(batch, world_size),
        steps=1,
        seed=seed,
        repeat=repeat,
    )


def epoch(spec: JobSpec, rank: int, *, count: int, number: int = 0) -> list[StepBatch]:
    return list(epoch_steps(spec, rank=rank, epoch=number, examples_count=count))


@given(examples_count=st.integers(0, 500), world_size=world_sizes)
def test_the_shares_partition_the_batch_in_order_of_rank(
    examples_count: int, world_size: int
) -> None:
    shares = [share(examples_count, world_size=world_size, rank=r) for r in range(world_size)]
    assert [position for part in shares for position in part] == list(range(examples_count))


@given(batch=counts, world_size=world_sizes, data=st.data())
def test_the_first_ranks_take_one_example_more(
    batch: int, world_size: int, data: st.DataObject
) -> None:
    spec = job(batch=batch, world_size=world_size)
    size = data.draw(st.integers(0, spec.global_batch_size))
    for rank in range(world_size):
        expected = spec.per_replica_batch_size(rank, examples_count=size)
        assert len(share(size, world_size=world_size, rank=rank)) == expected


@given(batch=counts, world_size=world_sizes, extra=st.integers(0, 100), seed=st.integers(0, 9))
def test_a_gang_takes_the_batches_of_one_machine_in_the_same_order(
    batch: int, world_size: int, extra: int, seed: int
) -> None:
    spec = job(batch=batch, world_size=world_size, seed=seed)
    alone = job(batch=spec.global_batch_size, seed=seed)
    count = spec.global_batch_size + extra
    ranks = [epoch(spec, rank, count=count) for rank in range(world_size)]
    for whole, *parts in zip(epoch(alone, 0, count=count), *ranks, strict=True):
        joined = np.concatenate([part.indices for part in parts])
        assert joined.tolist() == whole.indices.tolist()
        assert {part.examples_count for part in parts} == {len(whole.indices)}
        assert {part.is_partial for part in parts} == {whole.is_partial}


@given(batch=counts, extra=st.integers(0, 100), number=st.integers(0, 5))
def test_an_epoch_takes_every_example_once_and_only_its_last_step_is_partial(
    batch: int, extra: int, number: int
) -> None:
    count = batch + extra
    steps = epoch(job(batch=batch), 0, count=count, number=number)
    taken = np.concatenate([step.indices for step in steps])
    assert sorted(taken.tolist()) == list(range(count))
    assert len(steps) == -(-count // batch)
    assert [s.is_partial for s in steps] == [False] * (len(steps) - 1) + [count % batch != 0]


def test_every_epoch_and_every_seed_has_an_order_of_its_own() -> None:
    orders = [
        tuple(epoch_order(job(batch=8, seed=seed), epoch=number, examples_count=40).tolist())
        for seed in range(3)
        for number in range(3)
    ]
    assert len(set(orders)) == 9


def test_steps_without_end_go_through_one_epoch_after_the_other() -> None:
    spec = job(batch=4)
    steps = list(islice(endless_steps(spec, rank=0, examples_count=10), 6))
    expected = [*epoch(spec, 0, count=10), *epoch(spec, 0, count=10, number=1)]
    assert [s.indices.tolist() for s in steps] == [s.indices.tolist() for s in expected]


def test_ranks_that_hold_parts_of_a_model_get_every_example() -> None:
    spec = job(batch=4, world_size=3)
    whole = list(epoch_steps(spec, rank=None, epoch=0, examples_count=10))
    assert [step.examples_count for step in whole] == [4, 4, 2]
    alone = epoch(job(batch=4), 0, count=10)
    assert [step.indices.tolist() for step in whole] == [step.indices.tolist() for step in alone]


def test_a_batch_larger_than_the_set_is_refused_without_repeat() -> None:
    with pytest.raises(InvalidSpec, match="global_batch_size: expected at most the 10"):
        epoch(job(batch=11), 0, count=10)


@given(batch=st.integers(11, 95))
def test_with_repeat_an_epoch_is_one_full_batch_that_takes_all_examples_alike(batch: int) -> None:
    (step,) = epoch(job(batch=batch, repeat=True), 0, count=10)
    assert not step.is_partial
    taken = np.bincount(step.indices, minlength=10)
    assert taken.sum() == batch
    assert taken.max() - taken.min() <= 1


weights_of_ranks = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8)


@given(examples_count=st.integers(0, 500), weights=weights_of_ranks)
def test_shares_by_weight_partition_the_batch_each_within_an_example_of_its_part(
    examples_count: int, weights: list[float]
) -> None:
    size = len(weights)
    shares = [share(examples_count, world_size=size, rank=r, weights=weights) for r in range(size)]
    assert [position for part in shares for position in part] == list(range(examples_count))
    for part, weight in zip(shares, weights, strict=True):
        assert abs(len(part) - examples_count * weight / sum(weights)) <= 1 + 1e-6
