"""How many times as long: the ratio of two step times, and whether noise explains it."""

from __future__ import annotations

import math
import random

import pytest

from farm.measuring.precision import time_ratio


def test_the_ratio_is_that_of_geometric_means() -> None:
    found = time_ratio([2.0, 8.0], [1.0, 4.0], is_sequential=False)
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high, found.is_beyond_noise) == (None, None, None)


def test_the_interval_is_welchs() -> None:
    # By hand: logarithms 0 and 0.1 apart by half, so that d = 0.1 and both variances are 0.0025.
    base = [math.exp(x) for x in (-0.05, 0.0, 0.05)]
    times = [math.exp(0.1 + x) for x in (-0.05, 0.0, 0.05)]
    found = time_ratio(times, base, is_sequential=False)
    assert found is not None
    # e = sqrt(2 x 0.0025 / 3), 4 degrees of freedom, t = 2.7764.
    half = 2.7764451 * math.sqrt(2 * 0.0025 / 3)
    assert found.low == pytest.approx(math.exp(0.1 - half))
    assert found.high == pytest.approx(math.exp(0.1 + half))
    assert found.is_beyond_noise is False


def test_what_was_stopped_because_it_seemed_precise_has_a_wider_interval() -> None:
    plain = time_ratio([1.0, 1.1, 1.2], [1.0, 1.01, 1.02], is_sequential=False)
    wider = time_ratio([1.0, 1.1, 1.2], [1.0, 1.01, 1.02], is_sequential=True)
    assert plain is not None
    assert wider is not None
    assert wider.ratio == plain.ratio
    assert (wider.low or 0) < (plain.low or 0) < (plain.high or 0) < (wider.high or 0)


def test_turned_round_it_is_the_reciprocal() -> None:
    a, b = [1.0, 1.1, 1.3], [2.0, 2.1, 2.5, 2.2]
    one, other = (
        time_ratio(a, b, is_sequential=False),
        time_ratio(b, a, is_sequential=False),
    )
    assert one is not None
    assert other is not None
    assert one.ratio == pytest.approx(1 / other.ratio)
    assert one.low == pytest.approx(1 / (other.high or 0))


def test_equal_times_differ_by_nothing() -> None:
    same = time_ratio([1.0] * 3, [1.0] * 3, is_sequential=False)
    assert same is not None
    assert same.is_beyond_noise is False
    double = time_ratio([2.0] * 3, [1.0] * 3, is_sequential=False)
    assert double is not None
    assert double.is_beyond_noise is True


@pytest.mark.parametrize(("times", "base"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_without_times_there_is_no_ratio(times: list[float], base: list[float]) -> None:
    assert time_ratio(times, base, is_sequential=False) is None


def test_equal_cells_rarely_seem_to_differ() -> None:
    draw = random.Random(1).lognormvariate
    found = [
        time_ratio(
            [draw(0, 0.02) for _ in range(4)],
            [draw(0, 0.06) for _ in range(4)],
            is_sequential=False,
        )
        for _ in range(400)
    ]
    wrong = sum(one is not None and one.is_beyond_noise is True for one in found)
    assert wrong <= 0.08 * len(found)
