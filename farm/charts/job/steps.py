"""Charts of an attempt's step times: over the run, their distribution, and a summary.

Pure: from what the store gives to figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.charts.histogram import Histogram, histogram
from farm.charts.job.step_points import StepPoint
from farm.charts.timelines import Shade, TimelineAxis, TimelineFigure, TimelineSeries
from farm.messages.trainer_lines import StepKind
from farm.statistics import outlier_positions, quantile
from farm.store.series.step_ranges import StepSeries
from farm.text.display import count, duration
from farm.text.nouns import counted

_MOST_DRAWN_AS_BARS = 150  # so few steps are seen one by one, each as long as it took
_MOST_FAR_DOTS = 200
_LONGEST_LISTED = 5
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "99 %": 0.99}
# Two points are joined unless there is more time between them than this: an evaluation, say.
_HOLE_S = 1.0
_HOLE_RATIO = 0.2  # of what the first of them stands for, since its end is reckoned by its median
STEP_TIME = TimelineAxis(title="Step time", write=duration, d3_format=".3~s", suffix="s")

_PHASES = {
    StepKind.WARMUP: ("warm-up", "warmup"),
    StepKind.TIMED: ("timed", "timed"),
    StepKind.PARTIAL: ("timed", "timed"),
    StepKind.PROFILED: ("profiled", "profiled"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    step: int
    begun_s: float
    step_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """The timed steps that were read, in order; `far`: places of those far from the median.

    Place i of `steps`, `begins_s` and `times_s` is of one step. `is_complete`: they are all there
    are. `timed_count`: about how many there are.
    """

    steps: Sequence[int]
    begins_s: Sequence[float]
    times_s: Sequence[float]
    is_complete: bool
    timed_count: int
    far: Sequence[int]

    def at(self, place: int) -> TimedStep:
        """Return one of them."""
        return TimedStep(
            step=self.steps[place], begun_s=self.begins_s[place], step_time_s=self.times_s[place]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """The timed steps in numbers: `quantiles` of those that were read, by what they are called."""

    timed_count: int
    read_count: int
    quantiles: Mapping[str, float]
    far_count: int
    longest: Sequence[TimedStep]  # of those far from the median, the longest first


def timed_steps(series: StepSeries) -> TimedSteps:
    """Pick the timed steps out of a rank's."""
    steps: list[int] = []
    begins_s: list[float] = []
    times_s: list[float] = []
    for chunk in series.chunks:
        if chunk.kind is StepKind.TIMED:
            count_of_chunk = len(chunk.times_s)
            steps += range(chunk.first_step, chunk.first_step + count_of_chunk)
            begins_s += itertools.accumulate(chunk.times_s[:-1], initial=chunk.begun_s)
            times_s += chunk.times_s
    counted = sum(one.step_count for one in series.ranges if one.kind is StepKind.TIMED)
    return TimedSteps(
        steps=steps,
        begins_s=begins_s,
        times_s=times_s,
        far=outlier_positions(times_s),
        is_complete=series.is_complete,
        timed_count=len(steps) if series.is_complete else counted,
    )


def step_timeline(
    points: Sequence[StepPoint], timed: TimedSteps, *, shades: Sequence[Shade]
) -> TimelineFigure | None:
    """Return the chart of the step times, those far from the median marked."""
    if not points:
        return None
    is_thinned = any(point.step_count > 1 for point in points)
    lines = [TimelineSeries(name="median" if is_thinned else "step time", points=_joined(points))]
    if is_thinned:
        longest = [(point.begun_s, point.longest_s) for point in points]
        lines.insert(0, TimelineSeries(name="longest", points=longest, is_dots=True, style=5))
    far = [timed.at(place) for place in timed.far]
    if far:
        farthest = sorted(far, key=lambda one: one.step_time_s)[-_MOST_FAR_DOTS:]
        dots = sorted((one.begun_s, one.step_time_s) for one in farthest)
        lines.append(TimelineSeries(name="far from the median", points=dots, is_dots=True, style=4))
    total = sum(point.step_count for point in points)
    return TimelineFigure(
        key="step-time",
        title="Step time of rank 0",
        summary=f"{counted(total, 'step', write=count)}, "
        f"the longest {duration(max(p.longest_s for p in points))}",
        quantity=STEP_TIME,
        lines=lines,
        shades=shades,
    )


def steps_over(points: Sequence[StepPoint]) -> list[TimelineSeries]:
    """Return what is laid over the charts of the ranks: the steps, each as long as it took.

    Of many, the longest of each point, which is what explains a dip.
    """
    if not points:
        return []
    is_thinned = any(point.step_count > 1 for point in points)
    places: list[tuple[float, float | None]] = []
    if len(points) > _MOST_DRAWN_AS_BARS:
        places = _joined(points, is_longest=True)
    else:
        for point in points:
            level = point.longest_s
            places += [(point.begun_s, level), (point.end_s, level), (point.end_s, None)]
    return [
        TimelineSeries(name="longest step" if is_thinned else "step", points=places, is_over=True)
    ]


def step_histogram(timed: TimedSteps) -> Histogram | None:
    """Return how the timed steps' times are distributed."""
    which = "Timed steps" if timed.is_complete else f"{count(len(timed.steps))} of the timed steps"
    return histogram(timed.times_s, far=timed.far, title=f"{which} by their time")


def step_summary(timed: TimedSteps) -> StepSummary | None:
    """Return the timed steps in numbers; None without any."""
    ordered = sorted(timed.times_s)
    if not ordered:
        return None
    median_s = quantile(ordered, 0.5)
    long = [timed.at(place) for place in timed.far if timed.times_s[place] > median_s]
    return StepSummary(
        timed_count=timed.timed_count,
        read_count=len(ordered),
        quantiles={
            "shortest": ordered[0],
            **{name: quantile(ordered, ratio) for name, ratio in _QUANTILES.items()},
            "longest": ordered[-1],
        },
        far_count=len(timed.far),
        longest=sorted(long, key=lambda one: -one.step_time_s)[:_LONGEST_LISTED],
    )


def phases(
    points: Sequence[StepPoint], *, timed_window: tuple[float, float] | None
) -> tuple[Shade, ...]:
    """Return the stretches of warm-up, timed and profiled steps.

    `timed_window`: what the trainer itself says of the timed part, once it has ended.
    """
    found: dict[str, Shade] = {}
    for point in points:
        name, kind = _PHASES[point.kind]
        before = found.get(kind)
        found[kind] = Shade(
            name=name,
            kind=kind,
            begin_s=min(before.begin_s, point.begun_s) if before else point.begun_s,
            end_s=max(before.end_s, point.end_s) if before else point.end_s,
        )
    if timed_window is not None:
        begin_s, end_s = timed_window
        found["timed"] = Shade(name="timed", kind="timed", begin_s=begin_s, end_s=end_s)
    return tuple(found.values())


def _joined(
    points: Sequence[StepPoint], *, is_longest: bool = False
) -> list[tuple[float, float | None]]:
    """Join points of one kind that follow each other, and no others."""
    places: list[tuple[float, float | None]] = []
    before: StepPoint | None = None
    for point in points:
        if before is not None and (before.kind is not point.kind or _is_hole(before, point)):
            places.append((before.end_s, None))
        places.append((point.begun_s, point.longest_s if is_longest else point.step_time_s))
        before = point
    return places


def _is_hole(before: StepPoint, point: StepPoint) -> bool:
    allowed_s = _HOLE_S + before.longest_s + _HOLE_RATIO * (before.end_s - before.begun_s)
    return point.begun_s - before.end_s > allowed_s
