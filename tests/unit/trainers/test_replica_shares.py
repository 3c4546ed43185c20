"""How a rank's examples and devices are shared among its replicas."""

from __future__ import annotations

import numpy as np
import pytest

from farm.trainers.replica_shares import replica_devices, share_among_replicas


def sizes(examples_count: int, replica_count: int) -> list[int]:
    shares = share_among_replicas(np.arange(examples_count, dtype=np.int32), replica_count)
    weighted = np.diff(shares.bounds) * shares.weights
    return [int(size) for size in weighted]


@pytest.mark.parametrize(
    ("examples_count", "replica_count", "expected"),
    [(8, 1, [8]), (8, 2, [4, 4]), (8, 3, [3, 3, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0])],
)
def test_the_first_replicas_get_one_example_more(
    examples_count: int, replica_count: int, expected: list[int]
) -> None:
    assert sizes(examples_count, replica_count) == expected


@pytest.mark.parametrize("replica_count", [1, 2, 3, 7])
@pytest.mark.parametrize("examples_count", [0, 1, 5, 64])
def test_no_replica_has_nothing_and_no_example_counts_twice(
    examples_count: int, replica_count: int
) -> None:
    indices = np.random.default_rng(0).permutation(1000)[:examples_count].astype(np.int32)
    shares = share_among_replicas(indices, replica_count)
    parts = np.split(shares.indices, shares.bounds[1:-1])
    assert len(parts) == replica_count
    assert all(len(part) > 0 for part in parts)
    assert shares.bounds[-1] == len(shares.indices)
    counted = [part for part, weight in zip(parts, shares.weights, strict=True) if weight]
    assert np.array_equal(np.concatenate([*counted, []]), indices)


def test_the_arrays_are_of_the_types_that_a_step_takes() -> None:
    shares = share_among_replicas(np.arange(3, dtype=np.int32), 5)
    assert shares.indices.dtype == shares.bounds.dtype == np.int32
    assert shares.weights.dtype == np.float32


def test_replicas_are_on_gpus_only_where_each_has_one() -> None:
    assert replica_devices(gpu_count=3, replica_count=2) == ("/gpu:0", "/gpu:1")
    assert replica_devices(gpu_count=1, replica_count=2) == ("/cpu:0", "/cpu:1")
    assert replica_devices(gpu_count=0, replica_count=1) == ("/cpu:0",)
