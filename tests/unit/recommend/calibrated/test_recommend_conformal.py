"""Conformal quantiles, and how the hardness of a place widens an interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.recommend.calibrated.intervals import Conformal, Errors, quantile

ONES = np.ones(9)


def test_of_m_errors_the_one_in_place_of_m_plus_one_times_the_aim_is_taken() -> None:
    values = np.arange(1.0, 10.0)
    assert quantile(values, ONES, 0.8) == 8
    assert quantile(values, ONES, 0.9) == 9
    assert quantile(values[::-1].copy(), ONES, 0.5) == 5


def test_too_few_errors_are_stretched() -> None:
    few = np.array([1.0, 2.0, 3.0])
    of80, of90 = (quantile(few, np.ones(3), aim) for aim in (0.8, 0.9))
    assert 3 < of80 < of90 < 10


def test_repetitions_count_as_one() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.25, 0.25, 0.25, 0.25])
    assert quantile(values, weights, 0.6) == 4
    assert quantile(values, np.ones(8), 0.6) == 9


def errors(sizes: list[float], places: list[float]) -> Errors:
    return Errors(
        places=np.array(places)[:, None],
        cells=np.arange(len(sizes)),
        sizes=np.array(sizes),
        scales=np.ones(len(sizes)),
        weights=np.ones(len(sizes)),
    )


def test_intervals_are_wide_where_errors_were_large() -> None:
    found = Conformal.of(errors([0.01] * 10 + [0.5] * 10, [0.0] * 10 + [5.0] * 10))
    here, there = found.half_widths(np.array([[0.0], [5.0]]), np.ones(2))
    assert there[0] > 5 * here[0]
    assert list(found.constants) == pytest.approx([0.5, 0.5], rel=0.05)


def test_the_predictors_own_doubt_counts_by_its_root() -> None:
    found = Conformal.of(errors([0.1] * 20, [0.0] * 20))
    sure, unsure = found.half_widths(np.zeros((2, 1)), np.array([1.0, 4.0]))
    assert unsure[0] == pytest.approx(2 * sure[0])


def test_no_place_is_held_to_be_hard_beyond_all_measure() -> None:
    found = Conformal.of(errors([0.1] * 20, [0.0] * 20))
    [width] = found.half_widths(np.zeros((1, 1)), np.array([1e9]))
    assert width[0] <= 3 * found.constants[0]


def test_a_single_error_gives_an_interval() -> None:
    found = Conformal.of(errors([0.1], [0.0]))
    [width] = found.half_widths(np.zeros((1, 1)), np.ones(1))
    assert all(0.1 < w < math.inf for w in width)
