"""Charts of the step times of one attempt to run a job: over the run, and their distribution.

The ranks of a synchronous gang step together, so the steps of one rank stand for the gang. Pure:
turns rows of the store into figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.charts.histogram import Histogram, histogram
from farm.charts.timelines import Shade, TimelineAxis, TimelineFigure, TimelineSeries
from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind
from farm.statistics import outlier_positions, quantile
from farm.store.series.step_ranges import StepRange, StepSeries
from farm.text.display import count, duration
from farm.text.plurals import counted

_MOST_DRAWN_AS_BARS = 150  # so few steps are seen one by one, each as long as it took
_MOST_FAR_DOTS = 200
_LONGEST_LISTED = 5
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "99 %": 0.99}
# Two points are joined unless there is more time between them than this: an evaluation, say.
_HOLE_S = 1.0
_HOLE_RATIO = 0.2  # of what the first of them stands for, since its end is reckoned by its median
STEP_TIME_AXIS = TimelineAxis(title="Step time", write=duration, d3_format=".3~s", suffix="s")

_PHASES = {
    StepKind.WARMUP: ("warm-up", "warmup"),
    StepKind.TIMED: ("timed", "timed"),
    StepKind.PARTIAL: ("timed", "timed"),
    StepKind.PROFILED: ("profiled", "profiled"),
}


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
    while width < total and sum(-(-len(s.times_s) // width) for s in stretches) > max_points:
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
    """Numbers of the timed steps; `quantiles` of those that were read, by name."""

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
        quantity=STEP_TIME_AXIS,
        lines=lines,
        shades=shades,
    )


def steps_over(points: Sequence[StepPoint]) -> list[TimelineSeries]:
    """Return the overlay of the ranks' charts: the steps with their durations.

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
