"""Steps far from the median are counted, by a scale that they cannot stretch themselves."""

from __future__ import annotations

import random

import pytest

from farm.statistics import Outliers, find_outliers


def test_without_steps_there_are_no_outliers() -> None:
    assert find_outliers(()) == Outliers(count=0, largest_s=None)


def test_steps_on_both_sides_count_and_the_longest_is_named() -> None:
    times_s = [1.0, 1.1, 0.9, 1.05, 0.95] * 20 + [3.0, 2.0, 0.1]
    assert find_outliers(times_s) == Outliers(count=3, largest_s=3.0, is_in_stretches=True)


def test_only_short_outliers_have_no_longest() -> None:
    assert find_outliers([1.0] * 20 + [0.5]) == Outliers(count=1, largest_s=None)


def test_in_a_very_calm_series_a_hair_is_no_outlier() -> None:
    assert find_outliers([1.0] * 99 + [1.03]).count == 0
    assert find_outliers([1.0] * 99 + [1.04]).count == 1


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e3])
def test_the_unit_does_not_matter(factor: float) -> None:
    times_s = [(1.0 + 0.01 * (i % 5)) * factor for i in range(50)] + [5.0 * factor]
    assert find_outliers(times_s).count == 1


@pytest.mark.parametrize("share", [0.15, 0.3, 0.45])
def test_two_durations_all_over_a_run_are_no_stretches(share: float) -> None:
    draw = random.Random(3)
    in_stretches = 0
    for _ in range(200):
        times_s = [
            (2.0 if draw.random() < share else 1.0) + draw.gauss(0, 0.001) for _ in range(60)
        ]
        in_stretches += find_outliers(times_s).is_in_stretches
    assert in_stretches <= 15  # of a normal variable 2.3 % are that low


@pytest.mark.parametrize("begin", [0, 20, 48])
def test_steps_that_are_slow_for_a_while_are_a_stretch(begin: int) -> None:
    times_s = [3.0 if begin <= i < begin + 12 else 1.0 for i in range(60)]
    assert find_outliers(times_s).is_in_stretches
