"""The charts of an attempt's ranks, second by second, with the steps laid over them.

Pure: from what the store gives to figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.charts.job.step_points import StepPoint
from farm.charts.job.steps import STEP_TIME, steps_over
from farm.charts.timelines import Points, Shade, TimelineAxis, TimelineFigure, TimelineSeries
from farm.measuring.noise import NoiseLimits
from farm.store.series.sample_ranges import FOREIGN_LOAD, RankRanges
from farm.text.display import byte_count, byte_rate, percent

_LIMITS = NoiseLimits()


def _share(title: str) -> TimelineAxis:
    return TimelineAxis(title=title, write=percent, d3_format=".3~%", top=1.0)


def _rate(title: str) -> TimelineAxis:
    return TimelineAxis(title=title, write=byte_rate, d3_format=".3~s", suffix="B/s")


@dataclass(frozen=True, slots=True)
class _Metric:
    """`limit`: of what disturbs, what has to be exceeded for a second to be drawn at all."""

    name: str
    quantity: TimelineAxis
    limit: float = 0.0


_METRICS = (
    _Metric("cpu_ratio", _share("CPU of the trainers")),
    _Metric(
        "resident_bytes",
        TimelineAxis(
            title="Memory of the trainers", write=byte_count, d3_format=".3~s", suffix="B"
        ),
    ),
    _Metric("net_rx_bytes_per_s", _rate("Received")),
    _Metric("net_tx_bytes_per_s", _rate("Sent")),
)
# What would not even flag a measurement if it lasted disturbs nobody in one second.
_DISTURBANCES = (
    _Metric("machine_steal_ratio", _share("Stolen by the hypervisor"), _LIMITS.steal_ratio.flag),
    _Metric(FOREIGN_LOAD, _share("Used by other programs"), _LIMITS.foreign_load_ratio.flag),
    _Metric("throttled_ratio", _share("Held back by a CPU quota"), _LIMITS.throttled_ratio.flag),
    _Metric("swap_bytes_per_s", _rate("To and from swap"), _LIMITS.swap_bytes_per_s.flag),
)


def _key(metric: _Metric) -> str:
    return metric.name.partition("_per_")[0].replace("_", "-")


def quantity_of(name: str) -> TimelineAxis:
    """Return how the values of a metric of every rank are written."""
    return next(metric.quantity for metric in _METRICS if metric.name == name)


# In the order in which a page has the charts, whichever of them there are.
CHART_KEYS = tuple(_key(metric) for metric in (*_METRICS, *_DISTURBANCES))


def rank_timelines(
    series: Mapping[int, RankRanges], steps: Sequence[StepPoint], *, shades: Sequence[Shade]
) -> list[TimelineFigure]:
    """Return a chart of each metric, with the steps laid over, and of what disturbed the ranks."""
    if not series:
        return []
    over = steps_over(steps)
    charts = [
        _timeline(metric, _lines(series, metric, is_range=True), over=over, shades=shades)
        for metric in _METRICS
    ]
    for metric in _disturbances(series):
        values = (v for one in series.values() for v in one.highs[metric.name] if v is not None)
        if max(values, default=0.0) > metric.limit:
            lines = _lines(series, metric, is_range=False)
            charts.append(_timeline(metric, lines, over=[], shades=shades))
    return charts


def _disturbances(series: Mapping[int, RankRanges]) -> list[_Metric]:
    """Return what may have disturbed; of thinned samples the interrupts are in the foreign load."""
    if all(one.width_ticks == 1 for one in series.values()):
        return list(_DISTURBANCES)
    title = "Used by other programs and interrupts"
    return [
        dataclasses.replace(metric, quantity=dataclasses.replace(metric.quantity, title=title))
        if metric.name == FOREIGN_LOAD
        else metric
        for metric in _DISTURBANCES
    ]


def _timeline(
    metric: _Metric,
    lines: Sequence[TimelineSeries],
    *,
    over: Sequence[TimelineSeries],
    shades: Sequence[Shade],
) -> TimelineFigure:
    quantity = metric.quantity
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
        key=_key(metric),
        title=quantity.title,
        summary=summary + ("; the steps of rank 0 are laid over it" if over else ""),
        quantity=quantity,
        lines=[*over, *lines],
        over=STEP_TIME if over else None,
        shades=shades,
    )


def _lines(
    series: Mapping[int, RankRanges], metric: _Metric, *, is_range: bool
) -> list[TimelineSeries]:
    return [
        TimelineSeries(
            name=f"rank {rank}", style=style, points=_points(one, metric.name, is_range=is_range)
        )
        for style, (rank, one) in enumerate(sorted(series.items()))
    ]


def _points(one: RankRanges, name: str, *, is_range: bool) -> Points:
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
