"""Draws grouped bars for paper, distinguished by hatch and by colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.charts.chart import Bars, Mark, ends, ticks
from farm.charts.files.style import COLOURS, add_key, distinct, draw_intervals, panels, write_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "----")
# Black is for what is drawn upon the bars, and for their edges.
_FILLS = COLOURS[1:]
_GROUP_WIDTH = 0.8  # of the distance between two groups
_BAR_HEIGHT_IN = 0.2
_LETTERS_AN_INCH = 12


def draw_bars(
    bars: Sequence[Bars],
    *,
    columns: int = 1,
    is_lying: bool | None = None,
    colours: Sequence[str] = _FILLS,
) -> Figure:
    """Draw a panel for each, at most `columns` beside each other.

    `is_lying`: the bars go to the right, which leaves room for long names; None: where the names
    of the groups are too long to stand below. A series looks the same in every panel.

    Raises:
        FarmError: matplotlib is not installed.
    """
    columns = max(1, min(columns, len(bars)))
    rows = max(1, -(-len(bars) // columns))
    width_in = (6.4, 7.2)[columns - 1] if columns < 3 else 3.0 * columns
    if is_lying is None:
        is_lying = any(_is_too_wide(one, width_in / columns) for one in bars)
    height_in = 2.8
    if is_lying:
        count = max((len(one.groups) * one.most_side_by_side for one in bars), default=1)
        gaps = max((len(one.groups) for one in bars), default=1)
        height_in = 0.8 + _BAR_HEIGHT_IN * count + 0.06 * gaps
    names = [[series.name for series in one.series] for one in bars]
    styles = {name: place for place, name in enumerate(distinct(names))}
    with panels(rows, columns, width_in=width_in, row_height_in=height_in) as (figure, axes):
        handles: dict[str, Any] = {}
        for place, (shown, ax) in enumerate(zip(bars, axes, strict=False)):
            for number, series in enumerate(shown.series):
                style = styles[series.name]
                drawn = _series(ax, shown, number, style=style, is_lying=is_lying, fills=colours)
                handles.setdefault(series.name, drawn)
            before = bars[place - 1].groups if place % columns else None
            _frame(ax, shown, is_lying=is_lying, is_named=not is_lying or before != shown.groups)
        for ax in axes[len(bars) :]:
            ax.set_axis_off()
        if len(handles) > 1:
            add_key(figure, list(handles.values()), list(handles))
    return figure


def _series(
    ax: Axes, shown: Bars, number: int, *, style: int, is_lying: bool, fills: Sequence[str]
) -> Any:
    thickness = _GROUP_WIDTH / shown.most_side_by_side
    placed: list[Mark] = []
    for group in range(len(shown.groups)):
        beside = shown.of_group(group)
        for slot, (whose, mark) in enumerate(beside):
            if whose == number:
                x = group + (slot - (len(beside) - 1) / 2) * thickness
                placed.append(Mark(x=x, y=mark.y, low=mark.low, high=mark.high))
    places, heights = [mark.x for mark in placed], [mark.y for mark in placed]
    how: dict[str, Any] = {
        "facecolor": _tint(fills[style % len(fills)]),
        "edgecolor": "#333333",
        "hatch": _HATCHES[style % len(_HATCHES)],
        "linewidth": 0.7,
    }
    if is_lying:
        drawn = ax.barh(places, heights, height=0.92 * thickness, **how)
    else:
        drawn = ax.bar(places, heights, width=0.92 * thickness, **how)
    draw_intervals(ax, placed, color="black", is_lying=is_lying)
    return drawn


def _frame(ax: Axes, shown: Bars, *, is_lying: bool, is_named: bool) -> None:
    values = [v for m in shown.marks for v in (m.y, m.low, m.high) if v is not None]
    across = ax.yaxis if is_lying else ax.xaxis
    write_ticks(ax, shown.y, ticks(shown.y, values), of="x" if is_lying else "y")
    across.set_ticks(
        range(len(shown.groups)), shown.groups if is_named else [""] * len(shown.groups)
    )
    across.grid(visible=False)
    across.set_tick_params(length=0)
    ax.set_title(shown.title)
    limits = {
        "lim": ends(shown.y, values),
        "label": "" if shown.title == shown.y.title else shown.y.title,
    }
    between = {"lim": (-0.6, len(shown.groups) - 0.4), "label": "" if is_lying else shown.x}
    if is_lying:
        # The first group is at the top, where people begin to read.
        between["lim"] = (len(shown.groups) - 0.4, -0.6)
    for of, what in (
        ("x", limits if is_lying else between),
        ("y", between if is_lying else limits),
    ):
        ax.set(**{f"{of}{name}": value for name, value in what.items()})


def _is_too_wide(shown: Bars, width_in: float) -> bool:
    room = width_in * _LETTERS_AN_INCH / max(1, len(shown.groups))
    return max((len(name) for name in shown.groups), default=0) > room


def _tint(colour: str) -> str:
    """Return a lighter colour, on which hatches and intervals can be seen."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * 0.45):02x}" for part in parts)
