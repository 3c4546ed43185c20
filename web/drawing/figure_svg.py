"""Draw a chart as SVG text on the server, with the intervals as bars; needs no script.

Colours come from the style sheet, by the classes s0 to s5, since inline styles are against the
pages' content security policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from farm.figures.bars import Bars
from farm.figures.chart import STYLES, Figure, Mark, Series, ends, heights, ticks
from web.drawing.bars_svg import bars_to_plotly, draw_bars
from web.drawing.plot_frame import framed
from web.drawing.plotly_figure import to_plotly

_WIDTH, _HEIGHT = 440.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 12.0, 40.0
_RADIUS = 3.6
_WHISKER = 3.5  # half of the bar that ends an interval

_Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A chart as its template shows it: `data` is what the script reads."""

    figure: Figure | Bars
    svg: Markup
    data: dict[str, object]

    @property
    def key(self) -> Sequence[tuple[str, int]]:
        """The name of each series, and the number of its colour."""
        if isinstance(self.figure, Bars):
            return [(series.name, i % STYLES) for i, series in enumerate(self.figure.series)]
        return [(series.name, _style(series, i)) for i, series in enumerate(self.figure.series)]


def drawn(figure: Figure | Bars) -> Drawn:
    """Return all that a template needs to show a figure."""
    if isinstance(figure, Bars):
        return Drawn(figure=figure, svg=draw_bars(figure), data=bars_to_plotly(figure))
    return Drawn(figure=figure, svg=draw(figure), data=to_plotly(figure))


def draw(figure: Figure) -> Markup:
    """Draw it. A mark outside of what an axis can show does not exist: axes follow the marks."""
    if not figure.marks:
        return Markup('<p class="quiet">Nothing to draw.</p>')
    place = _placing(figure)
    parts = [_grid(figure, place)]
    for number, series in enumerate(figure.series):
        parts.append(_series(series, place, style=_style(series, number)))
    return framed(parts, width=_WIDTH, height=_HEIGHT, title=figure.title, summary=figure.summary)


def _style(series: Series, number: int) -> int:
    return (number if series.style is None else series.style) % STYLES


def _placing(figure: Figure) -> _Place:
    left, right = ends(figure.x, [mark.x for mark in figure.marks])
    low, high = ends(figure.y, heights(figure))

    def place(x: float, y: float) -> tuple[float, float]:
        across = _share(x, left, right, is_log=figure.x.is_log)
        up = _share(y, low, high, is_log=figure.y.is_log)
        return (
            round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * across, 1),
            round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * up, 1),
        )

    return place


def _share(value: float, low: float, high: float, *, is_log: bool) -> float:
    if is_log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _grid(figure: Figure, place: _Place) -> Markup:
    across = [mark.x for mark in figure.marks]
    corner_x, corner_y = ends(figure.x, across)[0], ends(figure.y, heights(figure))[0]
    left, floor = place(corner_x, corner_y)
    lines = [
        Markup(
            '<path class="axis" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(left, y, _WIDTH - _RIGHT, left - 6, y + 4, figure.y.write(value))
        for value in ticks(figure.y, heights(figure))
        for y in [place(corner_x, value)[1]]
    ]
    lines += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            place(value, corner_y)[0], floor + 15, figure.x.write(value)
        )
        for value in ticks(figure.x, across)
    ]
    lines.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(left, floor, _WIDTH - _RIGHT))
    lines.append(
        Markup('<text class="name" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _WIDTH - _RIGHT, _HEIGHT - 6, figure.x.title
        )
    )
    return Markup("").join(lines)


def _series(series: Series, place: _Place, *, style: int) -> Markup:
    line = Markup("")
    if series.is_joined and len(series.marks) > 1:
        points = " ".join(_pair(place(mark.x, mark.y)) for mark in series.marks)
        line = Markup('<polyline class="line s{}" points="{}"/>').format(style, points)
    bars = [_bar(mark, place, style=style) for mark in series.marks]
    dots = [_dot(mark, place, style=style) for mark in series.marks if series.has_dots]
    return Markup("").join([line, *bars, *dots])


def _bar(mark: Mark, place: _Place, *, style: int) -> Markup:
    if mark.low is None or mark.high is None:
        return Markup("")
    x, low = place(mark.x, mark.low)
    high = place(mark.x, mark.high)[1]
    ends_at = (round(x - _WHISKER, 1), round(x + _WHISKER, 1))
    left, right = ends_at
    return Markup(  # noqa: S704 (numbers alone)
        f'<path class="whisker s{style}" d="M{x} {low}V{high}'
        f'M{left} {low}H{right}M{left} {high}H{right}"/>'
    )


def _dot(mark: Mark, place: _Place, *, style: int) -> Markup:
    x, y = place(mark.x, mark.y)
    kind = "dot" if mark.is_solid else "hollow"
    title = f"<title>{escape(mark.note)}</title>" if mark.note else ""
    # Of the thousand dots of a large sweep, Markup.format would take longer than all else.
    circle = f'<circle class="{kind} s{style}" cx="{x}" cy="{y}" r="{_RADIUS}">'
    return Markup(f"{circle}{title}</circle>")  # noqa: S704 (of Markup and numbers)


def _pair(place: tuple[float, float]) -> str:
    return f"{place[0]:g},{place[1]:g}"
