"""The latency study's figures, in the style of research papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.studies.latency.cells import Curve, Panel
from farm.studies.text import ms
from farm.text.display import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def draw_epoch_times(shown: Sequence[Panel]) -> Drawn:
    """Draw time per epoch against delay: a panel a model and batch, a line a world size."""
    return draw_charts([_epoch_times(panel) for panel in shown])


def draw_round_trips(shown: Sequence[Panel]) -> Drawn:
    """Draw every run's step time against its measured round trip, with the fitted lines."""
    return draw_charts([_round_trips(panel) for panel in shown], shares_legend=False)


def _epoch_times(panel: Panel) -> Figure:
    farthest_s = max(p.one_way_delay_s for curve in panel.curves for p in curve.points)
    series: list[ChartSeries] = []
    for curve in panel.curves:
        name = f"{curve.world_size} {'host' if curve.world_size == 1 else 'hosts'}"
        style, marks = curve.world_size - 1, _epochs(curve)
        if curve.world_size == 1:
            # One machine waits for nobody: what was measured once holds at every delay.
            flat = [Mark(x=end_s, y=marks[0].y) for end_s in (0.0, farthest_s)]
            series.append(ChartSeries(name=name, marks=flat, has_dots=False, style=style))
        is_joined = curve.world_size > 1
        series.append(ChartSeries(name=name, marks=marks, is_joined=is_joined, style=style))
    return Figure(
        title=_named(panel),
        summary="time per epoch against delay",
        x=ChartAxis(title="one-way delay", write=duration),
        y=ChartAxis(title="time per epoch", write=duration),
        series=series,
    )


def _epochs(curve: Curve) -> list[Mark]:
    return [
        Mark(
            x=p.one_way_delay_s,
            y=p.step_time_s * p.steps_per_epoch,
            low=p.interval.low_s * p.steps_per_epoch if p.interval else None,
            high=p.interval.high_s * p.steps_per_epoch if p.interval else None,
        )
        for p in curve.points
    ]


def _round_trips(panel: Panel) -> Figure:
    series: list[ChartSeries] = []
    for curve in panel.gangs:
        pairs = [(run.rtt_s, run.step_time_s) for run in curve.runs]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        if not known:
            continue
        name, style = f"{curve.world_size} hosts", curve.world_size - 1
        if curve.fit is not None:
            name += f": {ms(curve.fit.intercept)} ms + {curve.fit.slope:.2f} RTT"
            line = [Mark(x=x, y=curve.fit.at(x)) for x in (0.0, max(x for x, _ in known))]
            series.append(ChartSeries(name=name, marks=line, has_dots=False, style=style))
        # Hollow, since runs lie upon each other.
        dots = [Mark(x=x, y=y, is_solid=False) for x, y in known]
        series.append(ChartSeries(name=name, marks=dots, is_joined=False, style=style))
    return Figure(
        title=_named(panel),
        summary="step time against measured round trip",
        x=ChartAxis(title="measured round trip", write=duration),
        y=ChartAxis(title="step time", write=duration),
        series=series,
    )


def _named(panel: Panel) -> str:
    return f"{panel.model}, global batch {panel.global_batch_size}"
