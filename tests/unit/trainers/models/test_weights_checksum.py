"""The checksum by which ranks notice that their weights differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.trainers.models.checksum import checksum

WEIGHTS = np.random.default_rng(1).normal(0, 0.05, (200, 700)).astype(np.float32)


@pytest.mark.parametrize(
    "other",
    [
        -WEIGHTS,
        WEIGHTS[:, ::-1],
        np.roll(WEIGHTS.reshape(-1), 1 << 16),
        np.random.default_rng(2).normal(0, 0.05, WEIGHTS.shape),
        np.where(np.arange(700) == 7, WEIGHTS + 0.01, WEIGHTS),
    ],
)
def test_other_weights_have_another_checksum(other: np.ndarray) -> None:
    large = np.zeros(10_000_000, np.float32)
    first, second = checksum([large, WEIGHTS]), checksum([large, other])
    assert not math.isclose(first, second, rel_tol=1e-8)


def test_a_last_digit_makes_no_other_checksum() -> None:
    signs = np.random.default_rng(3).choice([-1, 1], WEIGHTS.shape)
    rounded = np.nextafter(WEIGHTS, np.float32(np.inf) * signs, dtype=np.float32)
    assert math.isclose(checksum([WEIGHTS]), checksum([rounded]), rel_tol=1e-8)
