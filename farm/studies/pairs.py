"""Two configurations side by side, repetition by repetition: what one takes in terms of the other.

A repetition is a seed, so that runs of the same repetition have drawn the same initial weights and
the same order of examples. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from farm.core.precision import time_interval
from farm.figures.chart import Mark
from farm.studies.orderings import Place, Placed
from farm.studies.run_groups import RunGroup


def ratios(over: RunGroup, under: RunGroup, column: str) -> list[float]:
    """Return by repetition a column of `over` divided by that of `under`, where both have it."""
    pairs = _pairs(over, under, column)
    return [above / below for above, below in pairs if below > 0]


def differences(one: RunGroup, other: RunGroup, column: str) -> list[float]:
    """Return by repetition by how much the values of a column differ, always 0 or more."""
    return [abs(left - right) for left, right in _pairs(one, other, column)]


def placed_of(values: Sequence[float], at: Place) -> Placed | None:
    """Return the median of values above 0 with its 95 % interval, and where it stands."""
    if not values:
        return None
    interval = time_interval(values, is_sequential=True)
    low, high = (None, None) if interval is None else (interval.low_s, interval.high_s)
    return Placed(at=at, value=statistics.median(values), low=low, high=high)


def mark_of(values: Sequence[float], *, x: float) -> Mark | None:
    """Return the same as a point of a chart."""
    placed = placed_of(values, {})
    if placed is None:
        return None
    return Mark(x=x, y=placed.value, low=placed.low, high=placed.high)


def _pairs(one: RunGroup, other: RunGroup, column: str) -> list[tuple[float, float]]:
    left, right = _by_repetition(one, column), _by_repetition(other, column)
    return [(left[number], right[number]) for number in sorted(left.keys() & right.keys())]


def _by_repetition(group: RunGroup, column: str) -> Mapping[int, float]:
    values = ((run.repetition, getattr(run, column)) for run in group.runs)
    return {number: value for number, value in values if value is not None}
