"""Averaging weights: partners agree, every edge of the ring comes up, and all come together."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from farm.trainers.averaging import (
    PeriodicAveraging,
    RotatingNeighbour,
    collective_seconds_per_step,
    neighbour_after,
)

world_sizes = st.integers(2, 40)
steps = st.integers(0, 10_000)


def partners(step: int, world_size: int) -> list[int | None]:
    return [neighbour_after(step, rank=r, world_size=world_size) for r in range(world_size)]


@given(world_size=world_sizes, step=steps)
def test_partners_are_neighbours_and_agree(world_size: int, step: int) -> None:
    found = partners(step, world_size)
    for rank, partner in enumerate(found):
        if partner is None:
            continue
        assert found[partner] == rank
        assert (partner - rank) % world_size in {1, world_size - 1}
    assert found.count(None) == world_size % 2


@given(world_size=world_sizes, first=steps)
def test_every_edge_of_the_ring_comes_up_in_as_many_steps_as_there_are_ranks(
    world_size: int, first: int
) -> None:
    edges = {
        frozenset((rank, partner))
        for step in range(first, first + world_size)
        for rank, partner in enumerate(partners(step, world_size))
        if partner is not None
    }
    assert edges == {frozenset((r, (r + 1) % world_size)) for r in range(world_size)}


@given(world_size=st.integers(2, 12), seed=st.integers(0, 1000))
def test_gossip_alone_keeps_the_mean_and_brings_all_ranks_to_it(world_size: int, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=world_size)
    mean, spread = weights.mean(), np.ptp(weights)
    for step in range(4 * world_size**2):
        weights = np.array(
            [
                weights[rank] if partner is None else (weights[rank] + weights[partner]) / 2
                for rank, partner in enumerate(partners(step, world_size))
            ]
        )
        assert np.ptp(weights) <= spread + 1e-12
        spread = np.ptp(weights)
    np.testing.assert_allclose(weights, mean, atol=1e-6)


@given(world_size=world_sizes, step=steps)
def test_the_ranks_of_a_group_have_the_same_group(world_size: int, step: int) -> None:
    schedules = [RotatingNeighbour(world_size=world_size, rank=r) for r in range(world_size)]
    for rank, schedule in enumerate(schedules):
        group = schedule.group_after(step)
        if group is None:
            continue
        assert rank in group
        assert group in schedule.groups()
        assert {schedules[other].group_after(step) for other in group} == {group}


@given(world_size=world_sizes)
def test_the_ranks_can_meet_group_by_group_without_waiting_for_each_other_in_a_circle(
    world_size: int,
) -> None:
    waiting = [
        list(RotatingNeighbour(world_size=world_size, rank=r).groups()) for r in range(world_size)
    ]
    while any(waiting):
        met = [
            groups[0]
            for groups in waiting
            if groups and all(waiting[r] and waiting[r][0] == groups[0] for r in groups[0])
        ]
        assert met
        waiting = [[g for g in groups if g not in met] for groups in waiting]


@given(world_size=world_sizes, every=st.integers(1, 20))
def test_all_ranks_average_once_in_every_so_many_steps(world_size: int, every: int) -> None:
    schedule = PeriodicAveraging(world_size=world_size, steps_between_averages=every)
    found = [schedule.group_after(step) for step in range(3 * every)]
    assert [step for step, group in enumerate(found) if group] == [
        every - 1,
        2 * every - 1,
        3 * every - 1,
    ]
    assert {group for group in found if group} == set(schedule.groups())


@given(counts=st.lists(st.integers(0, 2), max_size=20))
def test_collectives_are_told_apart_by_the_steps_that_have_them(counts: list[int]) -> None:
    times_s = tuple(float(2**number) for number in range(sum(counts)))
    found = collective_seconds_per_step(counts, times_s)
    assert found is not None
    assert len(found) == len(counts)
    assert math.fsum(found) == math.fsum(times_s)
    assert all((time_s > 0) == (count > 0) for time_s, count in zip(found, counts, strict=True))


def test_a_trace_may_lack_the_end_of_its_last_collective_and_no_more() -> None:
    assert collective_seconds_per_step([0, 1, 0, 1], (2.0,)) == (0.0, 2.0, 0.0, 0.0)
    assert collective_seconds_per_step([1, 1, 1], (2.0,)) is None
