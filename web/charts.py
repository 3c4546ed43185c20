"""Small line charts as SVG text, made on the server so that pages need no script.

A missing tick is a gap in the line, never a line drawn across it. Colours come from the style
sheet, since inline styles are against the pages' content security policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 360.0, 120.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 6.0, 6.0, 20.0, 18.0
_SERIES_STYLES = 6

Points = Sequence[tuple[float, float | None]]  # (seconds, value), seconds ascending


@dataclass(frozen=True, slots=True)
class Chart:
    """`marked` is a span of seconds to shade, such as the timed window."""

    title: str
    series: Mapping[str, Points]
    write: Callable[[float | None], str]
    top: float | None = None  # of the value axis, if it has one by nature
    marked: tuple[float, float] | None = None


def draw(chart: Chart, *, gap_s: float) -> Markup:
    """Draw one chart; two points further apart than `gap_s` are not joined."""
    values = [v for points in chart.series.values() for _, v in points if v is not None]
    seconds = [s for points in chart.series.values() for s, _ in points]
    if not values:
        return Markup('<p class="quiet">Not measured.</p>')
    end_s = max(*seconds, 1.0)
    top = max([*values, chart.top or 0.0]) or 1.0

    def place(second: float, value: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * second / end_s
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top
        return round(x, 1), round(y, 1)

    lines = [
        _line(points, place, style=i % _SERIES_STYLES, gap_s=gap_s)
        for i, points in enumerate(chart.series.values())
    ]
    label = f"{chart.title}: at most {chart.write(max(values))} in {end_s:.0f} s"
    return Markup(
        '<svg class="chart" viewBox="0 0 {w:g} {h:g}" role="img" aria-label="{label}">'
        "{frame}{lines}</svg>"
    ).format(
        w=_WIDTH,
        h=_HEIGHT,
        label=label,
        frame=_frame(chart, place, top=top, end_s=end_s),
        lines=Markup("").join(lines),
    )


def _frame(
    chart: Chart,
    place: Callable[[float, float], tuple[float, float]],
    *,
    top: float,
    end_s: float,
) -> Markup:
    left, floor = place(0.0, 0.0)
    right, ceiling = place(end_s, top)
    shade = Markup("")
    if chart.marked is not None:
        begin, _ = place(max(0.0, chart.marked[0]), 0.0)
        end, _ = place(min(end_s, chart.marked[1]), 0.0)
        shade = Markup('<rect class="window" x="{}" y="{}" width="{}" height="{}"/>').format(
            begin, ceiling, max(0.0, round(end - begin, 1)), round(floor - ceiling, 1)
        )
    return Markup(
        '{shade}<path class="axis" d="M{l} {c}H{r}M{l} {f}H{r}"/>'
        '<text x="{l}" y="{c_text}">{top}</text>'
        '<text x="{l}" y="{below}">0 s</text>'
        '<text x="{r}" y="{below}" text-anchor="end">{end}</text>'
    ).format(
        shade=shade,
        l=left,
        r=right,
        c=ceiling,
        f=floor,
        c_text=ceiling - 5,
        below=floor + 13,
        top=escape(chart.write(top)),
        end=f"{end_s:.0f} s",
    )


def _line(
    points: Points,
    place: Callable[[float, float], tuple[float, float]],
    *,
    style: int,
    gap_s: float,
) -> Markup:
    """Draw the stretches between gaps; a lone point becomes a dot, or it could not be seen."""
    parts = []
    for stretch in _stretches(points, gap_s=gap_s):
        places = [place(second, value) for second, value in stretch]
        if len(places) == 1:
            dot = Markup('<circle class="dot s{}" cx="{}" cy="{}" r="1.8"/>')
            parts.append(dot.format(style, *places[0]))
        else:
            text = " ".join(f"{x:g},{y:g}" for x, y in places)
            parts.append(Markup('<polyline class="line s{}" points="{}"/>').format(style, text))
    return Markup("").join(parts)


def _stretches(points: Points, *, gap_s: float) -> list[list[tuple[float, float]]]:
    stretches: list[list[tuple[float, float]]] = []
    last_s: float | None = None
    for second, value in points:
        if value is None:
            last_s = None
            continue
        if last_s is None or second - last_s > gap_s:
            stretches.append([])
        stretches[-1].append((second, value))
        last_s = second
    return stretches
