"""Steps far from the median are counted, by a scale that they cannot stretch themselves."""

from __future__ import annotations

import pytest

from farm.core.outliers import Outliers, find_outliers


def test_without_steps_there_are_no_outliers() -> None:
    assert find_outliers(()) == Outliers(count=0, largest_s=None)


def test_steps_on_both_sides_count_and_the_longest_is_named() -> None:
    times_s = [1.0, 1.1, 0.9, 1.05, 0.95] * 20 + [3.0, 2.0, 0.1]
    assert find_outliers(times_s) == Outliers(count=3, largest_s=3.0)


def test_only_short_outliers_have_no_longest() -> None:
    assert find_outliers([1.0] * 20 + [0.5]) == Outliers(count=1, largest_s=None)


def test_in_a_very_calm_series_a_hair_is_no_outlier() -> None:
    assert find_outliers([1.0] * 99 + [1.03]).count == 0
    assert find_outliers([1.0] * 99 + [1.04]).count == 1


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e3])
def test_the_unit_does_not_matter(factor: float) -> None:
    times_s = [(1.0 + 0.01 * (i % 5)) * factor for i in range(50)] + [5.0 * factor]
    assert find_outliers(times_s).count == 1
