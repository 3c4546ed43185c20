"""Thins the step times of one rank for a chart.

The ranks of a synchronous gang step together, so one rank's steps tell the gang's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind
from farm.statistics import quantile
from farm.store.series.step_ranges import StepRange, StepSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """`step_count` consecutive steps of one kind from `step` on.

    `step_time_s`: their median. `longest_s`: the longest of them, or, of a run of many thousand
    steps, the largest 95th percentile of a second's steps.
    """

    step: int
    step_count: int
    kind: StepKind
    begun_s: float  # seconds after go
    step_time_s: float
    longest_s: float

    @property
    def end_s(self) -> float:
        """Return about when the last of them was done."""
        return self.begun_s + self.step_count * self.step_time_s


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive steps of one kind, however they were cut when they were reported."""

    kind: StepKind
    first_step: int
    begins_s: list[float]
    times_s: list[float]


def step_points(series: StepSeries, *, max_points: int) -> list[StepPoint]:
    """Return at most `max_points` points for a run of any length."""
    if series.is_complete:
        return thin_steps(series.chunks, max_points=max_points)
    return _some([_of_range(one) for one in series.ranges], max_points)


def thin_steps(chunks: Sequence[StepTimes], *, max_points: int) -> list[StepPoint]:
    """Reduce step times to at most `max_points` points, and never mix two kinds in one."""
    stretches = _stretches(chunks)
    total = sum(len(s.times_s) for s in stretches)
    width = max(1, -(-total // max_points))
    while width < total and _point_count(stretches, width) > max_points:
        width *= 2
    return _some([point for stretch in stretches for point in _points(stretch, width)], max_points)


def _some(points: list[StepPoint], max_points: int) -> list[StepPoint]:
    # Kinds that change oftener than that, as in thousands of tiny epochs, cannot all be shown.
    return points[:: max(1, -(-len(points) // max_points))]


def _of_range(one: StepRange) -> StepPoint:
    return StepPoint(
        step=one.first_step,
        step_count=one.step_count,
        kind=one.kind,
        begun_s=one.begun_s,
        step_time_s=one.typical_s,
        longest_s=one.long_s,
    )


def _stretches(chunks: Sequence[StepTimes]) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    for chunk in chunks:
        last = stretches[-1] if stretches else None
        if (
            last is None
            or last.kind is not chunk.kind
            or last.first_step + len(last.times_s) != chunk.first_step
        ):
            last = _Stretch(chunk.kind, chunk.first_step, [], [])
            stretches.append(last)
        ends_s = itertools.accumulate(chunk.times_s, initial=chunk.begun_s)
        last.begins_s.extend(itertools.islice(ends_s, len(chunk.times_s)))
        last.times_s.extend(chunk.times_s)
    return stretches


def _point_count(stretches: Sequence[_Stretch], width: int) -> int:
    return sum(-(-len(s.times_s) // width) for s in stretches)


def _points(stretch: _Stretch, width: int) -> list[StepPoint]:
    points = []
    for begin in range(0, len(stretch.times_s), width):
        ordered = sorted(stretch.times_s[begin : begin + width])
        points.append(
            StepPoint(
                step=stretch.first_step + begin,
                step_count=len(ordered),
                kind=stretch.kind,
                begun_s=stretch.begins_s[begin],
                step_time_s=quantile(ordered, 0.5),
                longest_s=ordered[-1],
            )
        )
    return points
