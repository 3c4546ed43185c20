from __future__ import annotations

import random

import pytest

from farm.statistics import fit_line


def test_points_on_a_line_give_that_line_without_any_doubt() -> None:
    fit = fit_line([(x, 0.02 + 3.5 * x) for x in (0.0, 0.04, 0.08)])

    assert fit is not None
    assert (fit.intercept, fit.slope) == pytest.approx((0.02, 3.5))
    assert fit.slope_high - fit.slope_low == pytest.approx(0.0, abs=1e-9)
    assert fit.at(0.1) == pytest.approx(0.37)


@pytest.mark.parametrize(
    "points",
    [[], [(0.0, 1.0), (1.0, 2.0)], [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]],
    ids=["none", "two", "one x"],
)
def test_too_little_for_an_interval_gives_no_line(points: list[tuple[float, float]]) -> None:
    assert fit_line(points) is None


def test_the_interval_is_the_one_of_the_books() -> None:
    # Equal weights, for the line is level: y' = 10, D = 2, s^2 = 6 / 2, t(0.975, 2) = 4.3027.
    fit = fit_line([(0.0, 9.0), (0.0, 11.0), (1.0, 9.0), (1.0, 11.0)])

    assert fit is not None
    assert fit.slope == pytest.approx(0.0, abs=1e-12)
    assert fit.slope_high == pytest.approx(4.302653 * (4 / 2) ** 0.5 / 1.0, rel=1e-6)
    assert fit.intercept_high - 10 == pytest.approx(4.302653 * 2**0.5 * (1 / 4 + 0.25) ** 0.5)


def test_long_times_do_not_outweigh_short_ones() -> None:
    """The same share too long moves the line by as much at either end."""
    line = [(x, 1.0 + 10 * x) for x in (0.0, 0.0, 1.0, 1.0)]
    near, far = fit_line([(0.0, 1.1), *line[1:]]), fit_line([*line[:3], (1.0, 12.1)])

    assert near is not None
    assert far is not None
    assert near.at(0.0) / 1 == pytest.approx(far.at(1.0) / 11, rel=1e-3)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator = random.Random(1)
    held = {"slope": 0, "intercept": 0}
    for _ in range(400):
        # Three runs at each delay that spread by 2 % of themselves, as the study has them.
        points = [
            (rtt_s, (0.02 + 4 * rtt_s) * generator.gauss(1, 0.02))
            for rtt_s in (0.0002, 0.0405, 0.0806)
            for _ in range(3)
        ]
        fit = fit_line(points)
        assert fit is not None
        held["slope"] += fit.slope_low <= 4 <= fit.slope_high
        held["intercept"] += fit.intercept_low <= 0.02 <= fit.intercept_high

    assert all(372 <= count <= 390 for count in held.values()), held
