"""Fits a straight line to measured times, with confidence intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from farm.statistics.student import student_quantile

_CONFIDENCE = 0.95
_LEAST_POINTS = 3
# Weights change by less than a rounding error after a few rounds already.
_ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """y = intercept + slope x, each with its 95 % interval; `count`: of the points."""

    intercept: float
    intercept_low: float
    intercept_high: float
    slope: float
    slope_low: float
    slope_high: float
    count: int

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit_line(points: Sequence[tuple[float, float]]) -> LineFit | None:
    """Fit y = a + b x to (x, y) with y > 0; None with fewer than 3 points or a single x.

    Minimises sum(w (y - a - b x)^2) with w = 1 / (a + b x)^2, found by repetition: step times
    spread by a share of themselves, so that equal weights would let the long ones decide alone.
    With S = sum(w), the weighted means x' and y', D = sum(w (x - x')^2) and n points:
    b = sum(w (x - x') (y - y')) / D, a = y' - b x', s^2 = sum(w (y - a - b x)^2) / (n - 2),
    se(b) = s / sqrt(D), se(a) = s sqrt(1 / S + x'^2 / D), and each interval is the value -+ t se
    with Student's t for n - 2 degrees of freedom (Draper and Smith 1998, sections 1.4 and 9.2).
    a has the unit of y, b that of y over that of x; neither depends on the units chosen.
    """
    if len(points) < _LEAST_POINTS or len({x for x, _ in points}) < 2:
        return None
    weights = [y**-2 for _, y in points]
    for _ in range(_ROUNDS):
        intercept, slope = _line(points, weights)
        fitted = [intercept + slope * x for x, _ in points]
        # Far from any line it may cross zero, where a share of it means nothing.
        weights = [
            (value if value > 0 else y) ** -2 for value, (_, y) in zip(fitted, points, strict=True)
        ]
    return _with_intervals(points, weights)


def _line(points: Sequence[tuple[float, float]], weights: Sequence[float]) -> tuple[float, float]:
    """Return intercept and slope."""
    middle_x, middle_y, spread = _moments(points, weights)
    together = math.fsum(
        w * (x - middle_x) * (y - middle_y) for w, (x, y) in zip(weights, points, strict=True)
    )
    slope = together / spread
    return middle_y - slope * middle_x, slope


def _moments(
    points: Sequence[tuple[float, float]], weights: Sequence[float]
) -> tuple[float, float, float]:
    """Return the weighted means of x and y, and sum(w (x - mean)^2)."""
    total = math.fsum(weights)
    middle_x = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    middle_y = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (x - middle_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    return middle_x, middle_y, spread


def _with_intervals(points: Sequence[tuple[float, float]], weights: Sequence[float]) -> LineFit:
    intercept, slope = _line(points, weights)
    middle_x, _, spread = _moments(points, weights)
    degrees = len(points) - 2
    squares = math.fsum(
        w * (y - intercept - slope * x) ** 2 for w, (x, y) in zip(weights, points, strict=True)
    )
    deviation = math.sqrt(squares / degrees)
    quantile = student_quantile((1 + _CONFIDENCE) / 2, degrees)
    half_slope = quantile * deviation / math.sqrt(spread)
    half_intercept = quantile * deviation * math.sqrt(1 / math.fsum(weights) + middle_x**2 / spread)
    return LineFit(
        intercept=intercept,
        intercept_low=intercept - half_intercept,
        intercept_high=intercept + half_intercept,
        slope=slope,
        slope_low=slope - half_slope,
        slope_high=slope + half_slope,
        count=len(points),
    )
