"""The interval of a median: it covers the truth as often as it says, correlated steps or not."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.statistics import correlation_length, median_interval

SERIES = st.lists(st.floats(1e-6, 1e3), min_size=6, max_size=200)


def autoregressive(count: int, phi: float, *, seed: int) -> list[float]:
    """Skewed times of median 1: exp of an AR(1) process with coefficient `phi`."""
    draw = random.Random(seed)
    value = draw.gauss(0, 1) / math.sqrt(1 - phi**2)
    times = []
    for _ in range(count):
        value = phi * value + draw.gauss(0, 1)
        times.append(math.exp(0.1 * value))
    return times


def coverage(count: int, phi: float, *, repetitions: int = 400) -> float:
    intervals = [median_interval(autoregressive(count, phi, seed=s)) for s in range(repetitions)]
    return sum(i is not None and i[0] <= 1.0 <= i[1] for i in intervals) / repetitions


# 400 repetitions know a coverage of 0.95 to within 0.02.
@pytest.mark.parametrize("count", [20, 50, 200, 1000])
def test_independent_steps_are_covered_as_promised(count: int) -> None:
    assert coverage(count, 0.0) >= 0.93


@pytest.mark.parametrize("phi", [0.3, 0.6])
@pytest.mark.parametrize("count", [10, 15, 20, 30])
def test_few_steps_claim_no_more_than_they_show(count: int, phi: float) -> None:
    """They underestimate how they depend on each other; ten of them have no interval."""
    intervals = [median_interval(autoregressive(count, phi, seed=s)) for s in range(400)]
    claimed = [interval for interval in intervals if interval is not None]
    assert bool(claimed) == (count > 10)
    if claimed:
        assert sum(low <= 1.0 <= high for low, high in claimed) / len(claimed) >= 0.9


@pytest.mark.parametrize(
    ("count", "phi", "least"), [(200, 0.5, 0.89), (1000, 0.8, 0.90), (2000, 0.95, 0.88)]
)
def test_correlated_steps_are_covered_almost_as_well(count: int, phi: float, least: float) -> None:
    assert coverage(count, phi, repetitions=200) >= least


def test_taking_correlated_steps_for_independent_would_cover_far_less() -> None:
    shuffled = 0
    for seed in range(200):
        times = autoregressive(1000, 0.8, seed=seed)
        random.Random(seed).shuffle(times)
        interval = median_interval(times)
        assert interval is not None
        shuffled += interval[0] <= 1.0 <= interval[1]
    assert shuffled / 200 < 0.7


@pytest.mark.parametrize(("phi", "expected"), [(0.0, 1.0), (0.5, 2.31), (0.8, 6.39), (0.9, 13.3)])
def test_the_correlation_length_is_that_of_the_indicator(phi: float, expected: float) -> None:
    # Of a Gaussian AR(1): 1 + 2 sum of 2 / pi asin(phi^k).
    lengths = [correlation_length(autoregressive(3000, phi, seed=s)) for s in range(20)]
    assert sum(lengths) / len(lengths) == pytest.approx(expected, rel=0.2)


@given(SERIES)
def test_the_interval_holds_the_median_and_lies_within_the_data(values: list[float]) -> None:
    interval = median_interval(values)
    if interval is not None:
        low, high = interval
        ordered = sorted(values)
        assert low <= ordered[len(ordered) // 2]
        assert ordered[(len(ordered) - 1) // 2] <= high
        assert {low, high} <= set(values)


@given(SERIES, st.sampled_from([0.001, 0.5, 2.0, 1024.0]))
def test_the_interval_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    scaled = median_interval([value * factor for value in values])
    plain = median_interval(values)
    assert (scaled is None) == (plain is None)
    if scaled is not None and plain is not None:
        assert scaled == pytest.approx((plain[0] * factor, plain[1] * factor))


@given(st.lists(st.floats(0.1, 10.0), max_size=11))
def test_fewer_than_twelve_steps_span_no_interval(values: list[float]) -> None:
    assert median_interval(values) is None


def test_steps_that_depend_on_each_other_for_too_long_span_none() -> None:
    assert median_interval([float(i) for i in range(40)]) is None


def test_equal_steps_are_known_exactly() -> None:
    assert median_interval([0.25] * 12) == (0.25, 0.25)
