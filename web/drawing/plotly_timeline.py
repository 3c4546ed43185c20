"""Charts over the seconds since go as plotly draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from farm.charts.timelines import TimelineFigure, TimelineSeries
from web.drawing.plotly_figure import literally


@dataclass(frozen=True, slots=True)
class _Unit:
    """In what the seconds of a chart of at most `up_to_s` are told to plotly."""

    name: str
    seconds: int
    digits: int
    up_to_s: float

    def of(self, second: float) -> float:
        return round(second / self.seconds, self.digits)


_UNITS = (
    _Unit("s", 1, 2, 600),
    _Unit("min", 60, 4, 4 * 3600),
    _Unit("h", 3600, 6, math.inf),
)
_WHOLE_FROM = 1000.0  # what is larger needs no fraction for four digits


def timeline_to_plotly(timeline: TimelineFigure) -> dict[str, object]:
    """Return traces, axes and shades.

    Plotly chooses the ticks, and the ranges where they follow the values: what a reader has zoomed
    into stays while new values come, and has ticks of its own.
    """
    begin_s, end_s = timeline.span_s
    unit = next(unit for unit in _UNITS if end_s - begin_s <= unit.up_to_s)
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": "since go"}, "ticksuffix": f" {unit.name}", "nticks": 7},
        "yaxis": _axis(timeline, is_over=False),
        "showlegend": len(timeline.lines) > 1,
        "uirevision": unit.name,
    }
    if timeline.over is not None:
        layout["yaxis2"] = {**_axis(timeline, is_over=True), "overlaying": "y", "side": "right"}
    return {
        "summary": timeline.summary,
        "data": [_trace(timeline, line, unit) for line in timeline.lines],
        "layout": layout,
        "shades": [
            {"kind": shade.kind, "x0": unit.of(shade.begin_s), "x1": unit.of(shade.end_s)}
            for shade in timeline.shades
        ],
    }


def _trace(timeline: TimelineFigure, line: TimelineSeries, unit: _Unit) -> dict[str, object]:
    quantity = timeline.over if line.is_over else timeline.quantity
    assert quantity is not None, "what is laid over has an axis"
    name = literally(line.name)
    value = f"%{{y:{quantity.d3_format}}}{quantity.suffix}"
    return {
        "type": "scatter",
        "mode": "markers" if line.is_dots else "lines",
        "name": name,
        "x": [unit.of(second) for second, _ in line.points],
        "y": [None if value is None else _short(value) for _, value in line.points],
        "yaxis": "y2" if line.is_over else "y",
        "hovertemplate": f"{name}: {value}, %{{x:.4~g}} {unit.name}<extra></extra>",
        "meta": {"tone": line.tone},
        "opacity": 0.7 if line.is_over else 1,
        "line": {
            "dash": "dash" if line.is_dashed else "solid",
            "width": 1 if line.is_over else 1.6,
        },
        "marker": {"size": 5},
    }


def _axis(timeline: TimelineFigure, *, is_over: bool) -> dict[str, object]:
    quantity = timeline.over if is_over else timeline.quantity
    assert quantity is not None, "what is laid over has an axis"
    axis: dict[str, object] = {
        # The one at the left is what the chart is called.
        "title": {"text": literally(quantity.title) if is_over else ""},
        "tickformat": quantity.d3_format,
        "ticksuffix": quantity.suffix,
        "tickmode": "auto",  # not those of the axis that it overlays
        "nticks": 6,
        "rangemode": "tozero",
    }
    extent = timeline.extent(is_over=is_over)
    return {**axis, "range": list(extent)} if extent == (0.0, quantity.top) else axis


def _short(value: float) -> float:
    """Round to four digits: what a reader can tell apart, and half of the page's size."""
    short = float(f"{value:.4g}")
    return int(short) if abs(short) >= _WHOLE_FROM else short
