"""Grouped bars as plotly draws them, with the groups' names beside them.

A series has its colour and its place in the group, so that neither alone has to tell it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from farm.charts.bars import Bars
from farm.charts.chart import STYLES, Mark, ends, heights, ticks
from web.drawing.plotly_figure import intervals, literally

_BAR, _MOST_BAR, _GAP = 13.0, 26.0, 9.0  # pixels
_AROUND, _KEY_LINE = 126.0, 10.0
_MOST_TITLE = 48  # of letters, upright beside the bars
_GROUP_SHARE = 0.8  # of the distance between two groups
_BAR_SHARE = 0.9  # of the room of a bar


@dataclass(frozen=True, slots=True)
class _Placed:
    """A bar; `middle` and `thickness` are in groups, whose middles are 0, 1, ..."""

    middle: float
    thickness: float
    series: int
    mark: Mark


def bars_to_plotly(shown: Bars) -> dict[str, object]:
    """Return traces and axes; the first group is at the top."""
    placed = list(_placed(shown))
    data = []
    for number, series in enumerate(shown.series):
        own = [one for one in placed if one.series == number]
        marks = [one.mark for one in own]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": literally(series.name),
                "x": [mark.y for mark in marks],
                "y": [one.middle for one in own],
                "width": [one.thickness * _BAR_SHARE for one in own],
                "text": [literally(mark.note or series.name) for mark in marks],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "meta": {"style": number % STYLES},
                "error_x": intervals(marks),
            }
        )
    values, groups = heights(shown.marks), len(shown.groups)
    places = ticks(shown.y, values)
    return {
        "summary": shown.summary,
        "data": data,
        "layout": {
            "xaxis": {
                "title": {"text": literally(shown.y.title)},
                "tickvals": places,
                "ticktext": [literally(shown.y.write(place)) for place in places],
                "range": list(ends(shown.y, values)),
            },
            "yaxis": {
                "title": {"text": literally(shown.x) if len(shown.x) <= _MOST_TITLE else ""},
                "tickvals": list(range(groups)),
                "ticktext": [literally(name) for name in shown.groups],
                "range": [groups - 0.4, -0.6],
                "showgrid": False,
            },
            "showlegend": len(shown.series) > 1,
            "height": round(_height(shown)),
        },
    }


def _placed(shown: Bars) -> Iterator[_Placed]:
    thickness = _GROUP_SHARE / shown.most_side_by_side
    for group in range(len(shown.groups)):
        beside = shown.of_group(group)
        for slot, (series, mark) in enumerate(beside):
            middle = group + (slot - (len(beside) - 1) / 2) * thickness
            yield _Placed(middle, thickness, series, mark)


def _height(shown: Bars) -> float:
    """Return how high a drawing has to be for bars that can be told apart, in pixels."""
    bars = shown.most_side_by_side
    bar = min(_MOST_BAR, max(_BAR, 200.0 / max(1, len(shown.groups) * bars)))
    return (bar * bars + _GAP) * len(shown.groups) + _AROUND + _KEY_LINE * len(shown.series)
