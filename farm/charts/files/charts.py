"""Draws charts of values with intervals for paper, one panel each."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farm.charts import chart
from farm.charts.files.style import (
    add_key,
    distinct,
    draw_event,
    draw_intervals,
    look,
    panels,
    paper_style,
    set_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_APART = 0.012  # of the axis, between two series at the same place
_MOST_OF_GAP = 0.3  # of what is between two places, for all series of one


def draw_charts(
    figures: Sequence[chart.Figure],
    *,
    columns: int = 2,
    shares_legend: bool = True,
    row_height_in: float = 2.6,
) -> Figure:
    """Draw a panel for each figure, at most `columns` beside each other.

    A name looks the same in every panel. One key stands above all where the panels have the same
    series, else each has its own; `shares_legend` False: each has its own in any case.

    Raises:
        FarmError: matplotlib is not installed.
    """
    columns = max(1, min(columns, len(figures)))
    rows = max(1, -(-len(figures) // columns))
    names = [[series.name for series in one.series] for one in figures]
    all_names = distinct(names)
    styles = {name: place for place, name in enumerate(all_names)}
    for one in figures:
        styles.update({s.name: s.style for s in one.series if s.style is not None})
    is_common = shares_legend and all(set(own) == set(all_names) for own in names)
    width_in = 7.2 if columns > 1 else 5.4
    if columns > 2:
        width_in = 3.2 * columns
    with panels(rows, columns, width_in=width_in, row_height_in=row_height_in) as (figure, axes):
        for shown, ax in zip(figures, axes, strict=False):
            handles = _panel(ax, shown, styles)
            if (handles and not shares_legend) or (not is_common and len(handles) > 1):
                ax.legend(handles.values(), handles.keys(), fontsize=8)
            elif is_common and shown is figures[0] and len(handles) > 1:
                add_key(figure, list(handles.values()), list(handles))
        for ax in axes[len(figures) :]:
            ax.set_axis_off()
    return figure


def draw_panel(ax: Axes, shown: chart.Figure) -> None:
    """Draw one figure into a caller's axes, with a legend where it has several series."""
    styles = {series.name: place for place, series in enumerate(shown.series)}
    with paper_style():
        handles = _panel(ax, shown, styles)
        if len(handles) > 1:
            ax.legend(handles.values(), handles.keys(), fontsize=8)


def _panel(ax: Axes, shown: chart.Figure, styles: Mapping[str, int]) -> dict[str, Any]:
    """Draw one figure; return what a key shows of each series, by name."""
    beside = _beside(shown)
    handles = {one.name: _series(ax, one, style=styles[one.name]) for one in beside}
    ax.set_title(shown.title)
    set_axis(ax, shown.x, [mark.x for mark in shown.marks], of="x")
    set_axis(ax, shown.y, chart.heights(shown.marks), of="y")
    if shown.title == shown.y.title:
        ax.set_ylabel("")
    for event in shown.events:
        draw_event(ax, event)
    return handles


def _beside(shown: chart.Figure) -> list[chart.ChartSeries]:
    """Move marks of the same counted place a little apart, so that each interval can be seen."""
    dotted = [series for series in shown.series if series.has_dots]
    places = sorted({mark.x for series in dotted for mark in series.marks})
    if not shown.x.is_counted or shown.x.is_log or len(dotted) < 2 or len(places) < 2:
        return list(shown.series)
    nearest = min(b - a for a, b in itertools.pairwise(places))
    apart = min(_MOST_APART * (places[-1] - places[0]), _MOST_OF_GAP * nearest / len(dotted))
    moves = {id(one): (i - (len(dotted) - 1) / 2) * apart for i, one in enumerate(dotted)}
    return [
        dataclasses.replace(
            one, marks=[dataclasses.replace(m, x=m.x + moves.get(id(one), 0.0)) for m in one.marks]
        )
        for one in shown.series
    ]


def _series(ax: Axes, series: chart.ChartSeries, *, style: int) -> Any:
    how = look(style)
    draw_intervals(ax, series.marks, color=how["color"])
    places = [mark.x for mark in series.marks]
    heights = [mark.y for mark in series.marks]
    line = how["linestyle"] if series.is_joined else ""
    if not series.has_dots:
        # The first look is black, and what is held against the others in it is solid.
        line = how["linestyle"] if style else "-"
        return ax.plot(places, heights, color=how["color"], linestyle=line, zorder=1.5)[0]
    if line:
        ax.plot(places, heights, color=how["color"], linestyle=line)
    for is_solid in (True, False):
        some = [mark for mark in series.marks if mark.is_solid is is_solid]
        ax.plot(
            [mark.x for mark in some],
            [mark.y for mark in some],
            color=how["color"],
            marker=how["marker"],
            linestyle="",
            markerfacecolor=how["color"] if is_solid else "white",
        )
    is_hollow = bool(series.marks) and not any(mark.is_solid for mark in series.marks)
    return ax.plot(
        [],
        [],
        **{**how, "linestyle": line},
        markerfacecolor="white" if is_hollow else str(how["color"]),
    )[0]
