"""Charts of one attempt to run a job: metrics of its machines second by second, and step times."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farm.charts.job.steps import STEP_TIME_AXIS, StepPoint, steps_over
from farm.charts.timelines import Shade, TimedValues, TimelineAxis, TimelineFigure, TimelineSeries
from farm.measuring.sampled_metrics import (
    DISTURBING,
    FOREIGN_LOAD,
    SAMPLED,
    USED,
    USED_BY_ROLE,
    SampledMetric,
)
from farm.store.series.sample_ranges import SERVING, TRAINING, RankRanges, RoleSeries

_NAMES = {TRAINING: "ranks that train, mean", SERVING: "servers, mean"}


def key_of(metric: SampledMetric) -> str:
    """Return the name of a metric's chart, without its unit."""
    return metric.name.partition("_per_")[0].replace("_", "-")


def quantity_of(metric: SampledMetric) -> TimelineAxis:
    """Return how the values of a metric are written."""
    is_share = not metric.unit
    return TimelineAxis(
        title=metric.title,
        write=metric.write,
        d3_format=".3~%" if is_share else ".3~s",
        suffix=metric.unit,
        top=1.0 if is_share else None,
    )


# In the order in which a page has the charts, whichever of them there are.
CHART_KEYS = tuple(map(key_of, SAMPLED))


def rank_timelines(
    series: Mapping[int, RankRanges], steps: Sequence[StepPoint], *, shades: Sequence[Shade]
) -> list[TimelineFigure]:
    """Return a chart of each metric, with the steps laid over, and of what disturbed the ranks."""
    if not series:
        return []
    over = steps_over(steps)
    charts = [
        _timeline(metric, _lines(series, metric, is_range=True), over=over, shades=shades)
        for metric in USED
    ]
    for metric in _disturbances(series):
        values = (v for one in series.values() for v in one.highs[metric.name] if v is not None)
        if max(values, default=0.0) > (metric.limit or 0.0):
            lines = _lines(series, metric, is_range=False)
            charts.append(_timeline(metric, lines, over=[], shades=shades))
    return charts


def _disturbances(series: Mapping[int, RankRanges]) -> list[SampledMetric]:
    """Return what may have disturbed; of thinned samples the interrupts are in the foreign load."""
    if all(one.width_ticks == 1 for one in series.values()):
        return list(DISTURBING)
    title = "Used by other programs and interrupts"
    return [
        dataclasses.replace(metric, title=title) if metric is FOREIGN_LOAD else metric
        for metric in DISTURBING
    ]


def _timeline(
    metric: SampledMetric,
    lines: Sequence[TimelineSeries],
    *,
    over: Sequence[TimelineSeries],
    shades: Sequence[Shade],
) -> TimelineFigure:
    quantity = quantity_of(metric)
    highest = max(
        ((v, second, line.name) for line in lines for second, v in line.points if v is not None),
        default=None,
    )
    if highest is None:
        over, summary = (), "not measured"
    else:
        value, second, name = highest
        summary = f"at most {quantity.write(value)}, {name} after {second:.0f} s"
    return TimelineFigure(
        key=key_of(metric),
        title=quantity.title,
        summary=summary + ("; the steps of rank 0 are laid over it" if over else ""),
        quantity=quantity,
        lines=[*over, *lines],
        over=STEP_TIME_AXIS if over else None,
        shades=shades,
    )


def _lines(
    series: Mapping[int, RankRanges], metric: SampledMetric, *, is_range: bool
) -> list[TimelineSeries]:
    return [
        TimelineSeries(
            name=f"rank {rank}", style=style, points=_points(one, metric.name, is_range=is_range)
        )
        for style, (rank, one) in enumerate(sorted(series.items()))
    ]


def _points(one: RankRanges, name: str, *, is_range: bool) -> TimedValues:
    """Return two points of a range, its least and its most, so that no peak is lost."""
    lows = one.lows[name] if is_range else one.highs[name]
    points: list[tuple[float, float | None]] = []
    last_tick: int | None = None
    for first, last, low, high in zip(
        one.first_ticks, one.last_ticks, lows, one.highs[name], strict=True
    ):
        if last_tick is not None and first - last_tick > 1.5 * one.width_ticks:
            points.append((last_tick, None))
        last_tick = last
        if first == last or not is_range:
            points.append((first, high))
        else:
            points += [(first, low), (last, high)]
    return points


def _key(metric: SampledMetric) -> str:
    return f"role-{key_of(metric)}"


ROLE_CHART_KEYS = tuple(map(_key, USED_BY_ROLE))


def role_timelines(
    roles: Sequence[RoleSeries], *, over: Sequence[TimelineSeries] = (), shades: Sequence[Shade]
) -> list[TimelineFigure]:
    """Return a chart for each metric that was reported by role. `over`: the steps as overlay."""
    found = []
    for metric in USED_BY_ROLE:
        lines = [
            TimelineSeries(name=_NAMES[role.name], points=role.metrics[metric.name], style=style)
            for style, role in enumerate(roles)
            if any(value is not None for _, value in role.metrics.get(metric.name, ()))
        ]
        if lines:
            found.append(_role_timeline(metric, lines, over, shades))
    return found


def _role_timeline(
    metric: SampledMetric,
    lines: Sequence[TimelineSeries],
    over: Sequence[TimelineSeries],
    shades: Sequence[Shade],
) -> TimelineFigure:
    quantity = quantity_of(metric)
    most = [
        f"{line.name} at most {quantity.write(max(v for _, v in line.points if v is not None))}"
        for line in lines
    ]
    return TimelineFigure(
        key=_key(metric),
        title=metric.role_title,
        summary="; ".join(most) + ("; the steps of rank 0 are laid over them" if over else ""),
        quantity=quantity,
        lines=[*over, *lines],
        over=STEP_TIME_AXIS if over else None,
        shades=shades,
    )
