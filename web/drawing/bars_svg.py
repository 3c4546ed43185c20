"""Draw grouped bars as SVG text on the server, and as what plotly draws; names lie beside them.

The first group is at the top. A series has its colour and its place in the group, so that neither
alone has to tell it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from farm.figures.bars import Bars
from farm.figures.chart import STYLES, Mark, ends, ticks
from web.drawing.plot_frame import framed
from web.drawing.plotly_figure import literally

_WIDTH = 440.0
_RIGHT, _TOP, _BOTTOM = 14.0, 6.0, 40.0
_BAR, _MOST_BAR, _GAP = 13.0, 26.0, 9.0
_LETTER = 6.3  # of the pages' text at 12 px, on average
_MOST_NAME = 130.0  # beside its bars; longer ones stand above them
_NAME_LINE = 16.0
_MOST_TITLE = 48  # of letters, upright beside the bars
_GROUP_SHARE = 0.8  # of the distance between two groups
_BAR_SHARE = 0.9  # of the room of a bar
_WHISKER = 3.0


@dataclass(frozen=True, slots=True)
class _Placed:
    """A bar: its middle and its thickness, in distances between groups, and its series."""

    middle: float
    thickness: float
    series: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Frame:
    """`left`: where the values begin; `room`: between two groups; `low`, `high`: of the axis.

    `above`: of the room, what the name of a group takes above its bars.
    """

    left: float
    room: float
    above: float
    floor: float
    low: float
    high: float

    def across(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.left + (_WIDTH - _RIGHT - self.left) * share, 1)

    def down(self, place: float) -> float:
        """Return the height of a place between groups, whose middles are 0, 1, ..."""
        group = round(place)
        return round(
            _TOP
            + self.room * group
            + self.above
            + (self.room - self.above) * (place - group + 0.5),
            1,
        )


def draw_bars(shown: Bars) -> Markup:
    """Draw them. What has no bar leaves no room for one."""
    if not shown.marks:
        return Markup('<p class="quiet">Nothing to draw.</p>')
    frame = _frame(shown)
    parts = [_grid(shown, frame), _names(shown, frame)]
    parts += [_bar(one, frame) for one in _placed(shown)]
    return framed(
        parts, width=_WIDTH, height=frame.floor + _BOTTOM, title=shown.title, summary=shown.summary
    )


def bars_to_plotly(shown: Bars) -> dict[str, object]:
    """Return traces and axes of the bars, placed as the server draws them."""
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
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [None if m.high is None else max(0.0, m.high - m.y) for m in marks],
                    "arrayminus": [None if m.low is None else max(0.0, m.y - m.low) for m in marks],
                },
            }
        )
    values, groups = _values(shown), len(shown.groups)
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
            "height": round(_frame(shown).floor + 120 + 10 * len(shown.series)),
        },
    }


def _placed(shown: Bars) -> Iterator[_Placed]:
    thickness = _GROUP_SHARE / shown.most_side_by_side
    for group in range(len(shown.groups)):
        beside = shown.of_group(group)
        for slot, (series, mark) in enumerate(beside):
            middle = group + (slot - (len(beside) - 1) / 2) * thickness
            yield _Placed(middle, thickness, series, mark)


def _values(shown: Bars) -> list[float]:
    return [v for m in shown.marks for v in (m.y, m.low, m.high) if v is not None]


def _frame(shown: Bars) -> _Frame:
    names = max((len(name) for name in shown.groups), default=0) * _LETTER
    bars = shown.most_side_by_side
    bar = min(_MOST_BAR, max(_BAR, 200.0 / max(1, len(shown.groups) * bars)))
    above = _NAME_LINE if names > _MOST_NAME else 0.0
    room = bar * bars + _GAP + above
    low, high = ends(shown.y, _values(shown))
    return _Frame(
        left=round(_RIGHT if above else max(30.0, names) + 8.0, 1),
        room=room,
        above=above,
        floor=_TOP + room * len(shown.groups),
        low=low,
        high=high,
    )


def _grid(shown: Bars, frame: _Frame) -> Markup:
    values = _sparse(ticks(shown.y, _values(shown)), shown, frame)
    lines = [
        Markup(
            '<path class="axis" d="M{x} {top}V{floor}"/>'
            '<text x="{x}" y="{below}" text-anchor="middle">{name}</text>'
        ).format(
            x=frame.across(value),
            top=_TOP,
            floor=frame.floor,
            below=frame.floor + 15,
            name=shown.y.write(value),
        )
        for value in values
    ]
    lines.append(
        Markup('<text class="name" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _WIDTH - _RIGHT, frame.floor + _BOTTOM - 6, shown.y.title
        )
    )
    return Markup("").join(lines)


def _sparse(values: Sequence[float], shown: Bars, frame: _Frame) -> Sequence[float]:
    """Leave out so many ticks that the others have room for their names."""
    if len(values) < 2:
        return values
    widest = max(len(shown.y.write(value)) for value in values) * _LETTER + 10.0
    return values[:: math.ceil(widest / (frame.across(values[1]) - frame.across(values[0])))]


def _names(shown: Bars, frame: _Frame) -> Markup:
    if frame.above:
        most = int((_WIDTH - _RIGHT - frame.left) / _LETTER)
        return Markup("").join(
            Markup('<text x="{}" y="{}">{}</text>').format(
                frame.left,
                round(_TOP + frame.room * place + frame.above - 4, 1),
                name if len(name) <= most else f"{name[: most - 1]}…",
            )
            for place, name in enumerate(shown.groups)
        )
    return Markup("").join(
        Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
            frame.left - 6, frame.down(place) + 4, name
        )
        for place, name in enumerate(shown.groups)
    )


def _bar(one: _Placed, frame: _Frame) -> Markup:
    mark, thick = one.mark, round(one.thickness * _BAR_SHARE * (frame.room - frame.above), 1)
    start, end = sorted((frame.across(max(frame.low, 0.0)), frame.across(mark.y)))
    middle = frame.down(one.middle)
    bar = Markup(
        '<rect class="dot s{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
    ).format(
        one.series % STYLES,
        start,
        round(middle - thick / 2, 1),
        round(end - start, 1),
        thick,
        mark.note,
    )
    if mark.low is None or mark.high is None:
        return bar
    left, right = frame.across(mark.low), frame.across(mark.high)
    top, bottom = round(middle - _WHISKER, 1), round(middle + _WHISKER, 1)
    return bar + Markup(  # noqa: S704 (numbers alone)
        f'<path class="whisker upon" d="M{left} {middle}H{right}'
        f'M{left} {top}V{bottom}M{right} {top}V{bottom}"/>'
    )
