"""Groups runs of the same configuration, with medians, spreads and comparisons of two. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.charts.chart import Mark
from farm.measuring.measurement import OK
from farm.measuring.precision import TimeInterval, time_interval
from farm.measuring.study_run import StudyRun
from farm.statistics import mean
from farm.studies.orderings import Place, Placed

# By `farm.measuring.precision.variance_inflation` with `ASSUMED_CORRELATION`; no configuration of
# the published studies, whose repetitions have others between them, needs more.
VARIANCE_INFLATION = 1.8


def placed_of(values: Sequence[float], at: Place) -> Placed | None:
    """Return the median of values above 0 with its 95 % interval, and where it stands."""
    if not values:
        return None
    found = study_interval(values)
    low, high = (found.low_s, found.high_s) if found else (None, None)
    return Placed(at=at, value=statistics.median(values), low=low, high=high)


def mark_of(values: Sequence[float], *, x: float) -> Mark | None:
    """Return the same as a point of a chart."""
    placed = placed_of(values, {})
    if placed is None:
        return None
    return Mark(x=x, y=placed.value, low=placed.low, high=placed.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """The successful runs of one configuration. `column` is always one of `StudyRun`."""

    runs: tuple[StudyRun, ...]

    @property
    def first(self) -> StudyRun:
        """Return one of them, to ask what was configured."""
        return self.runs[0]

    def median_of(self, column: str) -> float | None:
        """Return the median of what was measured; None if nothing was."""
        known = self.values_of(column)
        return statistics.median(known) if known else None

    def mean_of(self, column: str) -> float | None:
        """Return the mean of what was measured; None if nothing was."""
        return mean(getattr(run, column) for run in self.runs)

    def span_of(self, column: str) -> tuple[float, float] | None:
        """Return the least and the most of the runs."""
        known = self.values_of(column)
        return (known[0], known[-1]) if known else None

    def interval_of(self, column: str) -> tuple[float, float] | None:
        """Return the 95 % interval of the median; None with fewer than 3 runs, or one without."""
        found = study_interval(self.values_of(column))
        return None if found is None else (found.low_s, found.high_s)

    def values_of(self, column: str) -> list[float]:
        """Return what was measured in ascending order."""
        return sorted(value for run in self.runs if (value := getattr(run, column)) is not None)

    def by_repetition(self, column: str) -> dict[int, float]:
        """Return what was measured by the number of the repetition, which is its seed."""
        values = ((run.repetition, getattr(run, column)) for run in self.runs)
        return {number: value for number, value in values if value is not None}

    def placed(self, column: str, axes: Iterable[str]) -> Placed | None:
        """Return the median with its interval, and where it stands on these axes (columns too)."""
        at = {axis: getattr(self.first, axis) for axis in axes}
        return placed_of(self.values_of(column), at)

    def mark(self, column: str, *, x: float, factor: float = 1.0) -> Mark | None:
        """Return the median with its interval as a point of a chart, times a unit's factor."""
        return mark_of([factor * value for value in self.values_of(column)], x=x)


def study_interval(values: Sequence[float]) -> TimeInterval | None:
    """Return the 95 % interval of the median of repetitions; None with fewer than 3.

    Repetitions may go on until they agree, and those near each other in time are alike: a plain
    interval would take both for certainty.
    """
    return time_interval(values, is_sequential=True, inflation=VARIANCE_INFLATION)


def one_kind(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Return the runs with a time on the kind of hardware that has most: kinds are never pooled."""
    timed = [run for run in runs if run.status == OK and run.step_time_s]
    if not timed:
        return []
    kinds = Counter(run.fingerprint for run in timed)
    [(kind, _)] = kinds.most_common(1)
    return [run for run in timed if run.fingerprint == kind]


def run_groups(runs: Iterable[StudyRun], axes: Sequence[str]) -> list[RunGroup]:
    """Put runs together that are equal in these columns, in the order of the columns' values."""
    groups: dict[tuple[object, ...], list[StudyRun]] = {}
    for run in runs:
        groups.setdefault(tuple(getattr(run, axis) for axis in axes), []).append(run)

    def order(key: tuple[object, ...]) -> tuple[tuple[int, float, str], ...]:
        return tuple(
            (1, float(value), "") if isinstance(value, int | float) else (0, 0.0, str(value or ""))
            for value in key
        )

    return [RunGroup(runs=tuple(groups[key])) for key in sorted(groups, key=order)]


def ratios(over: RunGroup, under: RunGroup, column: str) -> list[float]:
    """Return by repetition a column of `over` divided by that of `under`, where both have it."""
    pairs = _pairs(over, under, column)
    return [above / below for above, below in pairs if below > 0]


def differences(one: RunGroup, other: RunGroup, column: str) -> list[float]:
    """Return by repetition by how much the values of a column differ, always 0 or more."""
    return [abs(left - right) for left, right in _pairs(one, other, column)]


def _pairs(one: RunGroup, other: RunGroup, column: str) -> list[tuple[float, float]]:
    """Pair the runs of the same seed, which have the same initial weights and order of examples."""
    left, right = one.by_repetition(column), other.by_repetition(column)
    return [(left[number], right[number]) for number in sorted(left.keys() & right.keys())]
