"""Prepares figures for templates: a table, and Plotly data for browsers with scripts.

The page's script and the style sheet choose the colours. Plotly interprets markup in texts, so
names chosen by users are escaped.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from markupsafe import Markup

from farm.charts.chart import (
    STYLES,
    Bars,
    ChartAxis,
    ChartSeries,
    Figure,
    Mark,
    ends,
    heights,
    ticks,
)
from farm.charts.figure_table import FigureTable, figure_table
from farm.charts.heat_map import HeatMap
from farm.charts.histogram import Bin, Histogram
from farm.charts.timelines import TimelineFigure, TimelineSeries
from farm.text.display import count, duration

AnyFigure: TypeAlias = Figure | Bars | Histogram | TimelineFigure | HeatMap
_F = TypeVar("_F", bound=AnyFigure)

_BAR_HEIGHT, _MOST_BAR_HEIGHT, _GROUP_GAP = 13.0, 26.0, 9.0  # pixels
_HEIGHT_AROUND_BARS, _KEY_LINE_HEIGHT = 126.0, 10.0
_MOST_GROUPS_TITLE = 48  # of letters, upright beside the bars
_GROUP_SHARE = 0.8  # of the distance between two groups
_BAR_SHARE = 0.9  # of the room of a bar
_NAMED_BINS = 5  # of a histogram
_COUNT_AXIS = ChartAxis(title="Steps", write=count)
_WHOLE_FROM = 1000.0  # what is larger needs no fraction for four digits
_FIELD_HEIGHT = 34  # pixels, of a heat map


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFigure(Generic[_F]):
    """`json`: what the script reads; empty where there is nothing to draw.

    `table` None: the page has a table of its own, as of a heat map.
    """

    figure: _F
    json: Markup
    table: FigureTable | None


def drawn(figure: _F) -> RenderedFigure[_F]:
    """Return everything that a template needs to show a figure."""
    table = None if isinstance(figure, HeatMap) else figure_table(figure)
    is_empty = table is not None and not table.rows
    drawing = Markup("") if is_empty else _in_page(_plotly(figure))
    return RenderedFigure(figure=figure, json=drawing, table=table)


def _plotly(figure: AnyFigure) -> dict[str, object]:
    match figure:
        case Bars():
            return bars_to_plotly(figure)
        case Histogram():
            return histogram_to_plotly(figure)
        case TimelineFigure():
            return timeline_to_plotly(figure)
        case HeatMap():
            return map_to_plotly(figure)
        case Figure():
            return to_plotly(figure)


def _in_page(data: object) -> Markup:
    """Write JSON that cannot end the HTML element that contains it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for mark in "<>&'":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)  # noqa: S704 (marks are escaped above)


def to_plotly(figure: Figure) -> dict[str, object]:
    """Return traces and axes of a chart."""
    return {
        "summary": figure.summary,
        "data": [_chart_trace(series, number) for number, series in enumerate(figure.series)],
        "layout": {
            "xaxis": _chart_axis(figure.x, [mark.x for mark in figure.marks]),
            "yaxis": _chart_axis(figure.y, heights(figure.marks)),
            "showlegend": len(figure.series) > 1,
        },
        **_events(figure),
    }


def _events(figure: Figure) -> dict[str, object]:
    events = [{"x": one.x, "text": _literally(one.text)} for one in figure.events]
    return {"events": events} if events else {}


def _chart_trace(series: ChartSeries, number: int) -> dict[str, object]:
    marks = series.marks
    parts = ["lines"] * series.is_joined + ["markers"] * series.has_dots
    return {
        "type": "scatter",
        "mode": "+".join(parts) or "none",
        "name": _literally(series.name),
        "x": [mark.x for mark in marks],
        "y": [mark.y for mark in marks],
        "text": [_literally(mark.note or series.name) for mark in marks],
        "hovertemplate": "%{text}<extra></extra>",
        "meta": {"style": (number if series.style is None else series.style) % STYLES},
        "marker": {"symbol": ["circle" if mark.is_solid else "circle-open" for mark in marks]},
        "error_y": _intervals(marks),
    }


def _chart_axis(axis: ChartAxis, values: Sequence[float]) -> dict[str, object]:
    """Name the ticks as the server does, so that both drawings say the same."""
    places, span = ticks(axis, values), ends(axis, values)
    return {
        "title": {"text": _literally(axis.title)},
        "type": "log" if axis.is_log else "linear",
        "tickvals": places,
        "ticktext": [_literally(axis.write(place)) for place in places],
        "range": [math.log10(end) for end in span] if axis.is_log else list(span),
    }


@dataclass(frozen=True, slots=True)
class _PlacedBar:
    """A bar; `middle` and `thickness` are in groups, whose middles are 0, 1, ..."""

    middle: float
    thickness: float
    series: int
    mark: Mark


def bars_to_plotly(shown: Bars) -> dict[str, object]:
    """Return traces and axes of grouped bars; the first group is at the top.

    A series has its own colour and its own place in the group.
    """
    placed = list(_placed_bars(shown))
    data = []
    for number, series in enumerate(shown.series):
        own = [one for one in placed if one.series == number]
        marks = [one.mark for one in own]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _literally(series.name),
                "x": [mark.y for mark in marks],
                "y": [one.middle for one in own],
                "width": [one.thickness * _BAR_SHARE for one in own],
                "text": [_literally(mark.note or series.name) for mark in marks],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "meta": {"style": number % STYLES},
                "error_x": _intervals(marks),
            }
        )
    values, groups = heights(shown.marks), len(shown.groups)
    places = ticks(shown.y, values)
    return {
        "summary": shown.summary,
        "data": data,
        "layout": {
            "xaxis": {
                "title": {"text": _literally(shown.y.title)},
                "tickvals": places,
                "ticktext": [_literally(shown.y.write(place)) for place in places],
                "range": list(ends(shown.y, values)),
            },
            "yaxis": {
                "title": {
                    "text": _literally(shown.x) if len(shown.x) <= _MOST_GROUPS_TITLE else ""
                },
                "tickvals": list(range(groups)),
                "ticktext": [_literally(name) for name in shown.groups],
                "range": [groups - 0.4, -0.6],
                "showgrid": False,
            },
            "showlegend": len(shown.series) > 1,
            "height": round(_bars_height(shown)),
        },
    }


def _placed_bars(shown: Bars) -> Iterator[_PlacedBar]:
    thickness = _GROUP_SHARE / shown.most_side_by_side
    for group in range(len(shown.groups)):
        beside = shown.of_group(group)
        for slot, (series, mark) in enumerate(beside):
            middle = group + (slot - (len(beside) - 1) / 2) * thickness
            yield _PlacedBar(middle, thickness, series, mark)


def _bars_height(shown: Bars) -> float:
    """Return the height in pixels at which the bars can be distinguished."""
    bars = shown.most_side_by_side
    bar = min(_MOST_BAR_HEIGHT, max(_BAR_HEIGHT, 200.0 / max(1, len(shown.groups) * bars)))
    return (
        (bar * bars + _GROUP_GAP) * len(shown.groups)
        + _HEIGHT_AROUND_BARS
        + _KEY_LINE_HEIGHT * len(shown.series)
    )


def histogram_to_plotly(figure: Histogram) -> dict[str, object]:
    """Return the bars of the bins, those far from the median apart."""
    counts = [float(one.count) for one in figure.bins]
    named = _named_bins(figure.bins)
    return {
        "summary": figure.summary,
        "data": [
            {
                "type": "bar",
                "x": [i for i, one in enumerate(figure.bins) if one.is_far == is_far],
                "y": [one.count for one in figure.bins if one.is_far == is_far],
                "text": [_literally(one.note) for one in figure.bins if one.is_far == is_far],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "name": "far from the median" if is_far else "steps",
                "meta": {"tone": "bad" if is_far else "s0"},
            }
            for is_far in (False, True)
            if any(one.is_far == is_far for one in figure.bins)
        ],
        "layout": {
            "xaxis": {
                "title": {"text": "Step time"},
                "tickvals": named,
                "ticktext": [_literally(_bin_name(figure.bins[i])) for i in named],
                "range": [-0.6, len(figure.bins) - 0.4],
            },
            "yaxis": {
                "title": {"text": "Steps"},
                "tickvals": _whole_ticks(counts),
                "ticktext": [count(value) for value in _whole_ticks(counts)],
                "range": list(ends(_COUNT_AXIS, counts)),
            },
            "showlegend": False,
        },
    }


def _whole_ticks(counts: Sequence[float]) -> list[float]:
    return [value for value in ticks(_COUNT_AXIS, counts) if value == int(value)]


def _named_bins(bins: Sequence[Bin]) -> list[int]:
    """Return the places of the bins that have their names written below them."""
    step = -(-len(bins) // _NAMED_BINS)
    return list(range(step // 2, len(bins), step))


def _bin_name(one: Bin) -> str:
    return duration((one.low_s + one.high_s) / 2)


@dataclass(frozen=True, slots=True)
class _TimeUnit:
    """The unit in which plotly gets the seconds of a chart of at most `up_to_s`."""

    name: str
    seconds: int
    digits: int
    up_to_s: float

    def of(self, second: float) -> float:
        return round(second / self.seconds, self.digits)


_TIME_UNITS = (
    _TimeUnit("s", 1, 2, 600),
    _TimeUnit("min", 60, 4, 4 * 3600),
    _TimeUnit("h", 3600, 6, math.inf),
)


def timeline_to_plotly(timeline: TimelineFigure) -> dict[str, object]:
    """Return traces, axes and shades of a chart over the seconds since go.

    Plotly chooses the ticks, and the ranges that follow the values. So a zoomed part stays when new
    values arrive, and has ticks of its own.
    """
    begin_s, end_s = timeline.span_s
    unit = next(unit for unit in _TIME_UNITS if end_s - begin_s <= unit.up_to_s)
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": "since go"}, "ticksuffix": f" {unit.name}", "nticks": 7},
        "yaxis": _timeline_axis(timeline, is_over=False),
        "showlegend": len(timeline.lines) > 1,
        "uirevision": unit.name,
    }
    if timeline.over is not None:
        layout["yaxis2"] = {
            **_timeline_axis(timeline, is_over=True),
            "overlaying": "y",
            "side": "right",
        }
    return {
        "summary": timeline.summary,
        "data": [_timeline_trace(timeline, line, unit) for line in timeline.lines],
        "layout": layout,
        "shades": [
            {"kind": shade.kind, "x0": unit.of(shade.begin_s), "x1": unit.of(shade.end_s)}
            for shade in timeline.shades
        ],
    }


def _timeline_trace(
    timeline: TimelineFigure, line: TimelineSeries, unit: _TimeUnit
) -> dict[str, object]:
    quantity = timeline.over if line.is_over else timeline.quantity
    assert quantity is not None, "what is laid over has an axis"
    name = _literally(line.name)
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


def _timeline_axis(timeline: TimelineFigure, *, is_over: bool) -> dict[str, object]:
    quantity = timeline.over if is_over else timeline.quantity
    assert quantity is not None, "what is laid over has an axis"
    axis: dict[str, object] = {
        # The one at the left is what the chart is called.
        "title": {"text": _literally(quantity.title) if is_over else ""},
        "tickformat": quantity.d3_format,
        "ticksuffix": quantity.suffix,
        "tickmode": "auto",  # not those of the axis that it overlays
        "nticks": 6,
        "rangemode": "tozero",
    }
    extent = timeline.extent(is_over=is_over)
    return {**axis, "range": list(extent)} if extent == (0.0, quantity.top) else axis


def _short(value: float) -> float:
    """Round to four digits, which are enough on a chart and halve the page's size."""
    short = float(f"{value:.4g}")
    return int(short) if abs(short) >= _WHOLE_FROM else short


def map_to_plotly(shown: HeatMap) -> dict[str, object]:
    """Return the rectangles and texts of a heat map.

    Plotly's own heat maps are an image with an inline style, which the pages' content security
    policy forbids.
    """
    places = [(i, j) for j in range(len(shown.rows)) for i in range(len(shown.columns))]
    fields = [shown.fields[j][i] for i, j in places]
    return {
        "summary": shown.summary,
        "data": [
            {
                "type": "scatter",
                "mode": "text",
                "x": [i for i, _ in places],
                "y": [j for _, j in places],
                "text": [_literally(field.text) for field in fields],
                "hovertext": [
                    _literally(f"{field.where}: {field.description}") for field in fields
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "meta": {"style": 0},
            }
        ],
        "layout": {
            "xaxis": _map_axis(shown.x_title, shown.columns, is_downward=False),
            "yaxis": _map_axis(shown.y_title, shown.rows, is_downward=True),
            "showlegend": False,
            "height": 110 + _FIELD_HEIGHT * len(shown.rows),
            "shapes": [
                {
                    "type": "rect",
                    "layer": "below",
                    "x0": i - 0.5,
                    "x1": i + 0.5,
                    "y0": j - 0.5,
                    "y1": j + 0.5,
                    "tone": field.tone,
                }
                for (i, j), field in zip(places, fields, strict=True)
            ],
        },
    }


def _map_axis(title: str, names: Sequence[str], *, is_downward: bool) -> dict[str, object]:
    span = [-0.5, len(names) - 0.5]
    return {
        "title": {"text": _literally(title)},
        "type": "linear",
        "tickvals": list(range(len(names))),
        "ticktext": [_literally(name) for name in names],
        "range": span[::-1] if is_downward else span,
        "showgrid": False,
    }


def _intervals(marks: Sequence[Mark]) -> dict[str, object]:
    """Return the intervals of marks as plotly has them: distances from the values."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if m.high is None else max(0.0, m.high - m.y) for m in marks],
        "arrayminus": [None if m.low is None else max(0.0, m.y - m.low) for m in marks],
    }


def _literally(text: str) -> str:
    """Escape text that plotly would interpret as markup."""
    return html.escape(text, quote=False)
