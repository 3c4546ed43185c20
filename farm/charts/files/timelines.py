"""Draws charts over the seconds of a run for paper, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.charts.files.style import add_key, look, panels, tick_text
from farm.charts.timelines import (
    Shade,
    TimelineAxis,
    TimelineFigure,
    TimelineSeries,
    second_ticks,
    write_second,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHADES = {"warmup": ("#f6ead2", ""), "timed": ("#e6eef8", ""), "profiled": ("#eeeeee", "///")}
_STEPS = "#8a8a8a"
_MOST_MARKED = 40  # points of a line that have a marker each; of more, some
_ROW_HEIGHT_IN = 1.75


def draw_timelines(timelines: Sequence[TimelineFigure], *, title: str = "") -> Figure:
    """Draw them stacked; gaps stay gaps, and the overlay has the axis at the right.

    Raises:
        FarmError: matplotlib is not installed.
    """
    rows = max(1, len(timelines))
    with panels(rows, 1, row_height_in=_ROW_HEIGHT_IN + 0.5 / rows) as (figure, axes):
        spans = [one.span_s for one in timelines] or [(0.0, 1.0)]
        begin_s, end_s = min(s for s, _ in spans), max(s for _, s in spans)
        handles: dict[str, Any] = {}
        for shown, ax in zip(timelines, axes, strict=False):
            handles |= _panel(ax, shown)
            _seconds(ax, begin_s, end_s, is_named=shown is timelines[-1])
        for shade in timelines[0].shades if timelines else ():
            handles.setdefault(shade.name, _shade_key(shade))
        if handles:
            add_key(figure, list(handles.values()), list(handles), title=title)
    return figure


def _panel(ax: Axes, shown: TimelineFigure) -> dict[str, Any]:
    ax.set_title(shown.title, loc="left")
    _scale(ax, shown, shown.quantity, is_over=False)
    handles = {one.name: _line(ax, one) for one in shown.lines if not one.is_over}
    lowest = ax
    over = [one for one in shown.lines if one.is_over]
    if over and shown.over is not None:
        lowest = beside = ax.twinx()
        # What is laid over stays behind what the panel is about.
        ax.set_zorder(beside.get_zorder() + 1)
        ax.patch.set_visible(False)
        beside.grid(visible=False)
        beside.spines["right"].set_visible(True)
        _scale(beside, shown, shown.over, is_over=True)
        beside.set_ylabel(shown.over.title)
        handles |= {one.name: _steps(beside, one) for one in over}
    for shade in shown.shades:
        colour, hatch = _SHADES.get(shade.kind, ("#eeeeee", ""))
        lowest.axvspan(
            *(shade.begin_s, shade.end_s),
            facecolor=colour,
            hatch=hatch,
            edgecolor="#cccccc",
            linewidth=0,
            zorder=0,
        )
    return handles


def _scale(ax: Axes, shown: TimelineFigure, quantity: TimelineAxis, *, is_over: bool) -> None:
    places = shown.ticks(is_over=is_over)
    ax.set_yticks(places, [tick_text(quantity.axis, value) for value in places])
    ax.set_ylim(*shown.extent(is_over=is_over))


def _seconds(ax: Axes, begin_s: float, end_s: float, *, is_named: bool) -> None:
    places = second_ticks(begin_s, end_s)
    ax.set_xticks(places, [write_second(second) if is_named else "" for second in places])
    ax.set_xlim(begin_s, end_s)
    if is_named:
        ax.set_xlabel("time since the start")


def _line(ax: Axes, line: TimelineSeries) -> Any:
    how = look(line.style)
    seconds = [second for second, _ in line.points]
    values = [float("nan") if value is None else value for _, value in line.points]
    if line.is_dots:
        how["linestyle"] = ""
    every = max(1, -(-len(seconds) // _MOST_MARKED)) if not line.is_dots else 1
    return ax.plot(seconds, values, **how, markersize=3.5, markevery=every, linewidth=1.1)[0]


def _steps(ax: Axes, line: TimelineSeries) -> Any:
    seconds = [second for second, _ in line.points]
    values = [float("nan") if value is None else value for _, value in line.points]
    return ax.plot(seconds, values, color=_STEPS, linewidth=1.0, solid_capstyle="butt")[0]


def _shade_key(shade: Shade) -> Any:
    from matplotlib.patches import Patch

    colour, hatch = _SHADES.get(shade.kind, ("#eeeeee", ""))
    return Patch(facecolor=colour, hatch=hatch, edgecolor="#bbbbbb", label=shade.name)
