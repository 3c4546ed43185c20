"""Groups runs of the same configuration, with medians, spreads and comparisons of two. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from farm.charts.chart import ChartSeries, Mark
from farm.configuration.catalogue import GangShape, Traffic
from farm.errors import FarmError
from farm.measuring.measurement import OK
from farm.measuring.precision import TimeInterval, time_interval
from farm.measuring.study_run import StudyRun
from farm.registry import strategy
from farm.statistics import mean
from farm.studies.orderings import Coordinates, Placed

# By `farm.measuring.precision.variance_inflation` with `ASSUMED_CORRELATION`; no configuration of
# the published studies, whose repetitions have others between them, needs more.
VARIANCE_INFLATION = 1.8
_Place = TypeVar("_Place", int, float)


def placed_of(values: Sequence[float], at: Coordinates) -> Placed | None:
    """Return the median of values above 0 with its 95 % interval, and where it stands."""
    if not values:
        return None
    found = study_interval(values)
    low, high = (found.low_s, found.high_s) if found else (None, None)
    return Placed(at=at, value=statistics.median(values), low=low, high=high)


def mark_of(values: Sequence[float], *, x: float) -> Mark | None:
    """Return the same as a point of a chart."""
    placed = placed_of(values, {})
    return None if placed is None else placed.mark(x=x)


def series_of(name: str, marks: Iterable[Mark | None], **look: Any) -> ChartSeries:
    """Return the points of a chart that there are as a line; `look`: see `ChartSeries`."""
    return ChartSeries(name=name, marks=[mark for mark in marks if mark is not None], **look)


def values_series(
    name: str, values: Mapping[_Place, Sequence[float]], *, style: int
) -> ChartSeries:
    """Return the medians of what was measured at each place of an axis as a line."""
    return series_of(name, (mark_of(found, x=x) for x, found in values.items()), style=style)


def level(name: str, *, y: float, x: tuple[float, float], style: int) -> ChartSeries:
    """Return a level line from one end of `x` to the other."""
    return ChartSeries(
        name=name, marks=[Mark(x=end, y=y) for end in x], has_dots=False, style=style
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """The successful runs of one configuration. `column` is always one of a run."""

    runs: tuple[StudyRun, ...]

    @property
    def first(self) -> StudyRun:
        """Return one of them, to ask what was configured."""
        return self.runs[0]

    @property
    def world_size(self) -> int:
        return cast(int, self.first["world_size"])

    @property
    def global_batch_size(self) -> int:
        return cast(int, self.first["global_batch_size"])

    @property
    def one_way_delay_s(self) -> float:
        return cast(float, self.first["one_way_delay_s"])

    @property
    def has_network(self) -> bool:
        """Whether anything is exchanged between processes."""
        return self.world_size > 1 or bool(self.first["server_count"])

    @property
    def expected_bytes_per_step(self) -> float | None:
        """What the strategy's theory says that one rank sends; None where nothing is sent."""
        gradients = [run.gradient_bytes for run in self.runs if run.gradient_bytes]
        return self.traffic(gradients[0]).bytes or None if gradients else None

    def traffic(self, gradient_bytes: float) -> Traffic:
        """Return what the strategy's theory says that one rank sends for a step."""
        gang = GangShape(
            world_size=self.world_size,
            server_count=self.first["server_count"],
            steps_between_averages=self.first["steps_between_averages"],
        )
        return strategy(self.first["strategy"] or "?").traffic(gang, gradient_bytes)

    @property
    def step_count(self) -> int | None:
        """The steps of all epochs."""
        steps, epochs = self.first["steps_per_epoch"], self.first["epochs"]
        return None if steps is None or epochs is None else steps * epochs

    @property
    def trips(self) -> list[tuple[float, float]]:
        """Return of each run the round trip that was measured, and its step time, in seconds."""
        pairs = [(run.rtt_s, run["step_time_s"]) for run in self.runs]
        return [(rtt_s, step_s) for rtt_s, step_s in pairs if rtt_s is not None and step_s]

    def median_of(self, column: str) -> float | None:
        """Return the median of what was measured; None if nothing was."""
        known = self.values_of(column)
        return statistics.median(known) if known else None

    def mean_of(self, column: str) -> float | None:
        """Return the mean of what was measured; None if nothing was."""
        return mean(run[column] for run in self.runs)

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
        return sorted(value for run in self.runs if (value := run[column]) is not None)

    def half_width_ratio(self, column: str) -> float | None:
        """Return half of the median's interval, over the median."""
        middle, ends = self.median_of(column), self.interval_of(column)
        return None if not middle or ends is None else (ends[1] - ends[0]) / 2 / middle

    def over_expected(self, column: str) -> float | None:
        """Return how much more bytes than the theory's a rank sent, as a ratio; below 0: less."""
        sent, expected = self.mean_of(column), self.expected_bytes_per_step
        return None if sent is None or expected is None else sent / expected - 1

    def by_repetition(self, column: str) -> dict[int, float]:
        """Return what was measured by the number of the repetition, which is its seed."""
        values = ((run.repetition, run[column]) for run in self.runs)
        return {number: value for number, value in values if value is not None}

    def placed(self, column: str, axes: Iterable[str]) -> Placed | None:
        """Return the median with its interval, and where it stands on these axes (columns too)."""
        at = {axis: self.first[axis] for axis in axes}
        return placed_of(self.values_of(column), at)

    def mark(self, column: str, *, x: float, factor: float = 1.0) -> Mark | None:
        """Return the median with its interval as a point of a chart, times a unit's factor."""
        return mark_of([factor * value for value in self.values_of(column)], x=x)

    def span_mark(self, column: str, *, x: float) -> Mark | None:
        """Return the median with the least and the most of the runs as a point of a chart."""
        middle, ends = self.median_of(column), self.span_of(column)
        if middle is None or ends is None:
            return None
        return Mark(x=x, y=middle, low=ends[0], high=ends[1])


def study_interval(values: Sequence[float]) -> TimeInterval | None:
    """Return the 95 % interval of the median of repetitions; None with fewer than 3.

    Repetitions may go on until they agree, and those near each other in time are alike: a plain
    interval would take both for certainty.
    """
    return time_interval(values, is_sequential=True, inflation=VARIANCE_INFLATION)


def one_kind(runs: Sequence[StudyRun], *, study: str) -> list[StudyRun]:
    """Return the runs with a time on the kind of hardware that has most: kinds are never pooled.

    Raises:
        FarmError: there is none.
    """
    timed = [run for run in runs if run.status == OK and run["step_time_s"]]
    if not timed:
        raise FarmError(f"the {study} study has no measured run to show")
    [(kind, _)] = Counter(run.fingerprint for run in timed).most_common(1)
    return [run for run in timed if run.fingerprint == kind]


def run_groups(runs: Iterable[StudyRun], axes: Sequence[str]) -> list[RunGroup]:
    """Put runs together that are equal in these columns, in the order of the columns' values."""
    groups: dict[tuple[object, ...], list[StudyRun]] = {}
    for run in runs:
        groups.setdefault(tuple(run[axis] for axis in axes), []).append(run)

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


def ratios_along(
    over: Mapping[_Place, RunGroup], under: Mapping[_Place, RunGroup], column: str
) -> dict[_Place, list[float]]:
    """Return the same at each place of an axis, without those that neither or only one has."""
    found = {place: ratios(over[place], under[place], column) for place in over if place in under}
    return {place: values for place, values in found.items() if values}


def differences(one: RunGroup, other: RunGroup, column: str) -> list[float]:
    """Return by repetition by how much the values of a column differ, always 0 or more."""
    return [abs(left - right) for left, right in _pairs(one, other, column)]


def _pairs(one: RunGroup, other: RunGroup, column: str) -> list[tuple[float, float]]:
    """Pair the runs of the same seed, which have the same initial weights and order of examples."""
    left, right = one.by_repetition(column), other.by_repetition(column)
    return [(left[number], right[number]) for number in sorted(left.keys() & right.keys())]


def by_verdict(
    ratios_of: Mapping[str, Sequence[float]], *, equal: str, more: str, less: str
) -> dict[str, list[str]]:
    """Write ratios, "1.02 times" and what they are of, below what their intervals tell of them.

    `equal`: they are about 1, within what repetitions differ by.
    """
    found: dict[str, list[str]] = {}
    for name, values in ratios_of.items():
        interval, middle = study_interval(values), statistics.median(values)
        verdict = more if middle > 1 else less
        if interval is None or interval.low_s <= 1 <= interval.high_s:
            verdict = equal
        found.setdefault(verdict, []).append(f"{middle:.2f} times {name}")
    return found
