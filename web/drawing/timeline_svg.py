"""Draw a timeline as SVG text on the server; needs no script.

A missing second is a gap in a line, never a line drawn across it. Colours come from the style
sheet, since inline styles are against the pages' content security policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from farm.figures.timelines import (
    Points,
    TimelineFigure,
    TimelineSeries,
    second_ticks,
    write_second,
)
from web.drawing.plot_frame import framed
from web.drawing.timeline_json import to_json

_WIDTH, _HEIGHT = 440.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 12.0, 28.0
_RIGHT_AXIS = 56.0  # room for its values
# A range is drawn by its least and its most, so these are twice as many points, about one in a
# pixel. The script has all of them.
_MOST_RANGES = 150

_Across = Callable[[float], float]
_Up = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTimeline:
    """A chart as its template shows it: `json` is what the script reads."""

    figure: TimelineFigure
    svg: Markup
    json: Markup


def drawn(timeline: TimelineFigure) -> DrawnTimeline:
    """Return all that a template needs to show a timeline."""
    # Nothing to draw leaves the script nothing to draw over.
    json = to_json(timeline) if _is_measured(timeline) else Markup("")
    return DrawnTimeline(figure=timeline, svg=draw(timeline), json=json)


def draw(timeline: TimelineFigure) -> Markup:
    """Draw it."""
    if not _is_measured(timeline):
        return Markup('<p class="quiet">Not measured.</p>')
    right = _WIDTH - (_RIGHT if timeline.over is None else _RIGHT_AXIS)
    begin_s, end_s = timeline.span_s

    def across(second: float) -> float:
        share = (min(max(second, begin_s), end_s) - begin_s) / (end_s - begin_s)
        return round(_LEFT + (right - _LEFT) * share, 1)

    up = _placing(timeline, is_over=False)
    parts = [_shades(timeline, across, right=right), _grid(timeline, across, up, right=right)]
    if timeline.over is not None:
        up_over = _placing(timeline, is_over=True)
        parts.append(_right_axis(timeline, up_over, right=right))
        parts += [_line(line, across, up_over) for line in timeline.lines if line.is_over]
    parts += [_line(line, across, up) for line in timeline.lines if not line.is_over]
    return framed(
        parts, width=_WIDTH, height=_HEIGHT, title=timeline.title, summary=timeline.summary
    )


def _is_measured(timeline: TimelineFigure) -> bool:
    return any(value is not None for line in timeline.lines for _, value in line.points)


def _placing(timeline: TimelineFigure, *, is_over: bool) -> _Up:
    low, high = timeline.extent(is_over=is_over)

    def up(value: float) -> float:
        share = (value - low) / (high - low)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share, 1)

    return up


def _shades(timeline: TimelineFigure, across: _Across, *, right: float) -> Markup:
    floor = _HEIGHT - _BOTTOM
    begin_s, end_s = timeline.span_s
    return Markup("").join(
        Markup('<rect class="shade {}" x="{}" y="{}" width="{}" height="{}"/>').format(
            shade.kind,
            across(shade.begin_s),
            _TOP,
            round(min(across(shade.end_s), right) - across(shade.begin_s), 1),
            floor - _TOP,
        )
        for shade in timeline.shades
        if shade.begin_s < end_s and shade.end_s > begin_s
    )


def _grid(timeline: TimelineFigure, across: _Across, up: _Up, *, right: float) -> Markup:
    floor = _HEIGHT - _BOTTOM
    lines = [
        Markup(
            '<path class="axis" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(_LEFT, up(value), right, _LEFT - 6, up(value) + 4, timeline.quantity.write(value))
        for value in timeline.ticks(is_over=False)
    ]
    lines += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            across(second), floor + 16, write_second(second)
        )
        for second in second_ticks(*timeline.span_s)
    ]
    lines.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(_LEFT, floor, right))
    return Markup("").join(lines)


def _right_axis(timeline: TimelineFigure, up: _Up, *, right: float) -> Markup:
    assert timeline.over is not None
    write = timeline.over.write
    return Markup("").join(
        Markup('<text x="{}" y="{}">{}</text>').format(right + 6, up(value) + 4, write(value))
        for value in timeline.ticks(is_over=True)
    )


def _line(line: TimelineSeries, across: _Across, up: _Up) -> Markup:
    """Draw the stretches between gaps; a lone point becomes a dot, or it could not be seen."""
    kind = f"{line.tone}{' over' if line.is_over else ''}{' dashed' if line.is_dashed else ''}"
    parts = []
    for stretch in _stretches(line.points):
        if line.is_dots or len(stretch) == 1:
            parts += [
                Markup('<circle class="dot {}" cx="{}" cy="{}" r="{}"/>').format(
                    kind, across(second), up(value), 2.6 if line.is_dots else 1.6
                )
                for second, value in stretch
            ]
        else:
            text = " ".join(f"{across(second):g},{up(value):g}" for second, value in stretch)
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(kind, text))
    return Markup("").join(parts)


def _stretches(points: Points) -> Iterator[list[tuple[float, float]]]:
    width = -(-len(points) // (2 * _MOST_RANGES))
    stretch: list[tuple[float, float]] = []
    for second, value in points:
        if value is not None:
            stretch.append((second, value))
        elif stretch:
            yield _fewer(stretch, width)
            stretch = []
    if stretch:
        yield _fewer(stretch, width)


def _fewer(points: list[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """Keep the lowest and the highest of each `2 * width` points, in their order."""
    if width == 1:
        return points
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(points), 2 * width):
        some = points[begin : begin + 2 * width]
        values = [value for _, value in some]
        kept += [some[i] for i in sorted({values.index(min(values)), values.index(max(values))})]
    return kept
