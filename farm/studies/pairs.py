"""Compares two configurations repetition by repetition.

A repetition is a seed, so that runs of the same repetition have drawn the same initial weights and
the same order of examples. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from farm.studies.run_groups import RunGroup


def ratios(over: RunGroup, under: RunGroup, column: str) -> list[float]:
    """Return by repetition a column of `over` divided by that of `under`, where both have it."""
    pairs = _pairs(over, under, column)
    return [above / below for above, below in pairs if below > 0]


def differences(one: RunGroup, other: RunGroup, column: str) -> list[float]:
    """Return by repetition by how much the values of a column differ, always 0 or more."""
    return [abs(left - right) for left, right in _pairs(one, other, column)]


def _pairs(one: RunGroup, other: RunGroup, column: str) -> list[tuple[float, float]]:
    left, right = _by_repetition(one, column), _by_repetition(other, column)
    return [(left[number], right[number]) for number in sorted(left.keys() & right.keys())]


def _by_repetition(group: RunGroup, column: str) -> Mapping[int, float]:
    values = ((run.repetition, getattr(run, column)) for run in group.runs)
    return {number: value for number, value in values if value is not None}
