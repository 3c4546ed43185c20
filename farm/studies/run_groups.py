"""Runs of the same configuration together: what they came to, each value with its spread. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.core.means import mean
from farm.core.measurement import OK
from farm.core.precision import time_interval
from farm.core.study_run import StudyRun
from farm.figures.chart import Mark
from farm.studies.orderings import Placed


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
        """Return the 95 % interval of the median; None with fewer than 3 runs, or one without.

        Repetitions may go on until they agree, which a plain interval would take for certainty.
        """
        found = time_interval(self.values_of(column), is_sequential=True)
        return None if found is None else (found.low_s, found.high_s)

    def values_of(self, column: str) -> list[float]:
        """Return what was measured in ascending order."""
        return sorted(value for run in self.runs if (value := getattr(run, column)) is not None)

    def placed(self, column: str, axes: Iterable[str]) -> Placed | None:
        """Return the median with its interval, and where it stands on these axes (columns too)."""
        value, ends = self.median_of(column), self.interval_of(column)
        if value is None:
            return None
        low, high = ends or (None, None)
        at = {axis: getattr(self.first, axis) for axis in axes}
        return Placed(at=at, value=value, low=low, high=high)

    def mark(self, column: str, *, x: float, factor: float = 1.0) -> Mark | None:
        """Return the median with its interval as a point of a chart, times a unit's factor."""
        value, ends = self.median_of(column), self.interval_of(column)
        if value is None:
            return None
        low, high = (factor * ends[0], factor * ends[1]) if ends else (None, None)
        return Mark(x=x, y=factor * value, low=low, high=high)


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
    return [RunGroup(runs=tuple(groups[key])) for key in sorted(groups, key=_order)]


def _order(key: tuple[object, ...]) -> tuple[tuple[int, float, str], ...]:
    return tuple(
        (1, float(value), "") if isinstance(value, int | float) else (0, 0.0, str(value or ""))
        for value in key
    )
