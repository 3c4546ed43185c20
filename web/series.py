"""The step times of one rank, thinned to what a reader can take in.

The ranks of a synchronous gang step together, so one rank's steps tell the gang's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from farm.core.measurement import quantile
from farm.core.reports import StepTimes
from farm.core.trainer_lines import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """`step_time_s`: the median of `step_count` consecutive steps of one kind from `step` on."""

    step: int
    step_count: int
    kind: StepKind
    begun_s: float  # seconds after go
    step_time_s: float


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive steps of one kind, however they were cut when they were reported."""

    kind: StepKind
    first_step: int
    begins_s: list[float]
    times_s: list[float]


def thin_steps(chunks: Sequence[StepTimes], *, max_points: int) -> list[StepPoint]:
    """Reduce step times to at most `max_points` points, and never mix two kinds in one."""
    stretches = _stretches(chunks)
    total = sum(len(s.times_s) for s in stretches)
    width = max(1, -(-total // max_points))
    while width < total and _point_count(stretches, width) > max_points:
        width *= 2
    points = [point for stretch in stretches for point in _points(stretch, width)]
    # Kinds that change oftener than that, as in thousands of tiny epochs, cannot all be shown.
    return points[:: max(1, -(-len(points) // max_points))]


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
    return [
        StepPoint(
            step=stretch.first_step + i,
            step_count=len(stretch.times_s[i : i + width]),
            kind=stretch.kind,
            begun_s=stretch.begins_s[i],
            step_time_s=quantile(sorted(stretch.times_s[i : i + width]), 0.5),
        )
        for i in range(0, len(stretch.times_s), width)
    ]
