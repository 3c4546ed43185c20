"""What must hold of a fitted line whatever the points."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.statistics import LineFit, fit_line


@st.composite
def points(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Three runs at each of three delays, near a line that rises."""
    intercept = draw(st.floats(0.001, 1.0))
    slope = draw(st.floats(0.1, 10.0))
    noise = draw(st.floats(0.0, 0.05))
    generator = random.Random(draw(st.integers(0, 1000)))
    return [
        (x, (intercept + slope * x) * generator.uniform(1 - noise, 1 + noise))
        for x in (0.0001, 0.04, 0.08)
        for _ in range(3)
    ]


def fitted(of: list[tuple[float, float]]) -> LineFit:
    fit = fit_line(of)
    assert fit is not None
    return fit


def near(value: float, *, scale: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-9 * scale)


@given(points(), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_do_not_matter(
    seconds: list[tuple[float, float]], x_unit: float, y_unit: float
) -> None:
    plain = fitted(seconds)
    other = fitted([(x * x_unit, y * y_unit) for x, y in seconds])

    for name in ("intercept", "intercept_low", "intercept_high"):
        assert getattr(other, name) == near(getattr(plain, name) * y_unit, scale=y_unit)
    for name in ("slope", "slope_low", "slope_high"):
        unit = y_unit / x_unit
        assert getattr(other, name) == near(getattr(plain, name) * unit, scale=unit)


@given(points())
def test_round_trips_are_the_same_in_milliseconds(seconds: list[tuple[float, float]]) -> None:
    in_ms = fitted([(x * 1000, y * 1000) for x, y in seconds])

    assert in_ms.slope == near(fitted(seconds).slope, scale=1)


@given(points(), st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(
    ordered: list[tuple[float, float]], generator: random.Random
) -> None:
    shuffled = list(ordered)
    generator.shuffle(shuffled)

    assert fitted(shuffled).slope == near(fitted(ordered).slope, scale=1)


@given(points())
def test_the_line_lies_within_its_intervals(measured: list[tuple[float, float]]) -> None:
    fit = fitted(measured)

    assert fit.slope_low <= fit.slope <= fit.slope_high
    assert fit.intercept_low <= fit.intercept <= fit.intercept_high


@given(st.floats(0.001, 1.0), st.floats(0.0, 10.0))
def test_what_lies_on_a_line_is_found_again(intercept: float, slope: float) -> None:
    fit = fitted([(x, intercept + slope * x) for x in (0.0, 0.01, 0.02, 0.08)])

    assert fit.intercept == near(intercept, scale=1)
    assert fit.slope == pytest.approx(slope, rel=1e-6, abs=1e-7)
