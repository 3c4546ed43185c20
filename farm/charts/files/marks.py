"""Common parts of drawn figures: intervals, axes with units, legends."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.charts.chart import ChartAxis, ChartEvent, Mark, ends, ticks
from farm.charts.files.look import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTERS_AN_INCH = 13  # of the figures' letters, about
_SHARE_OF_PANEL = 0.8  # of a panel's width is left for what stands below it
_USELESS_ZEROS = re.compile(r"(\.\d*?)0+(?!\d)")
_ROOM_AT_ZERO_RATIO = 0.025
_ROOM_RATIO = 0.06  # on either side of the places of an axis
_HANDLE_LETTERS = 6  # as wide as so many letters is what stands before a name


def look(style: int) -> dict[str, Any]:
    """Return colour, marker and dash of a series; no two of the first 49 are alike."""
    kinds, turn = len(COLOURS), style // len(COLOURS)
    return {
        "color": COLOURS[style % kinds],
        "marker": MARKERS[(style + turn) % kinds],
        "linestyle": DASHES[(style + 2 * turn) % kinds],
    }


def draw_intervals(ax: Axes, marks: Sequence[Mark], *, color: str, is_lying: bool = False) -> None:
    """Draw the intervals that the marks have. A median may lie outside of its own."""
    known = [(m.x, m.low, m.high) for m in marks if m.low is not None and m.high is not None]
    if not known:
        return
    middles = [(low + high) / 2 for _, low, high in known]
    halves = [(high - low) / 2 for _, low, high in known]
    places = [x for x, _, _ in known]
    if is_lying:
        ax.errorbar(middles, places, xerr=halves, fmt="none", ecolor=color, elinewidth=1.1)
    else:
        ax.errorbar(places, middles, yerr=halves, fmt="none", ecolor=color, elinewidth=1.1)


def draw_event(ax: Axes, event: ChartEvent) -> None:
    """Draw a line from the bottom to the top, with words along it."""
    ax.axvline(event.x, color="0.5", linestyle=":", linewidth=0.8, zorder=1)
    ax.text(
        event.x,
        0.98,
        event.text,
        transform=ax.get_xaxis_transform(),
        rotation=90,
        ha="right",
        va="top",
        fontsize=6,
        parse_math=False,
    )


def set_axis(ax: Axes, axis: ChartAxis, values: Sequence[float], *, of: str) -> None:
    """Scale and write the axis `of` "x" or "y" as the figure asks, round the values on it."""
    target = ax.xaxis if of == "x" else ax.yaxis
    if axis.is_log:
        ax.set(**{f"{of}scale": "log"})
        target.set_minor_formatter("")
    if axis.is_counted and values and not axis.is_log:
        room = _ROOM_RATIO * ((max(values) - min(values)) or 2.0)
        low, high = min(values) - room, max(values) + room
    else:
        low, high = ends(axis, values)
        if of == "x" and not axis.is_log and low == 0:
            # A mark at 0 would hang on the other axis.
            low = -_ROOM_AT_ZERO_RATIO * high
    ax.set(**{f"{of}lim": (low, high), f"{of}label": axis.title})
    write_ticks(ax, axis, ticks(axis, values), of=of)


def write_ticks(ax: Axes, axis: ChartAxis, places: Sequence[float], *, of: str) -> None:
    """Write values on the axis `of` "x" or "y", whose ends are set: below it those with room."""
    texts = [tick_text(axis, value) for value in places]
    if of == "x":
        # A value without room keeps its tick, since marks stand above it.
        texts = _with_room(ax, places, texts)
    target = ax.xaxis if of == "x" else ax.yaxis
    target.set_ticks(places, texts)
    target.set_ticks([], minor=True)


def _with_room(ax: Axes, places: Sequence[float], texts: Sequence[str]) -> list[str]:
    scale = ax.xaxis.get_transform()
    low, high = (float(scale.transform(end)) for end in ax.get_xlim())
    letters = panel_width_in(ax) * _LETTERS_AN_INCH / (high - low)
    kept: list[str] = []
    free_from = -math.inf
    for place, text in zip(places, texts, strict=True):
        middle, half = (float(scale.transform(place)) - low) * letters, (len(text) + 1) / 2
        has_room = middle - half >= free_from
        kept.append(text if has_room else "")
        free_from = middle + half if has_room else free_from
    return kept


def tick_text(axis: ChartAxis, value: float) -> str:
    """Write a round value without the digits that a measured one has."""
    return _USELESS_ZEROS.sub(r"\1", axis.write(value)).replace(". ", " ").rstrip(".")


def panel_width_in(ax: Axes) -> float:
    """Return about how wide it is inside, in inches."""
    figure, grid = ax.get_figure(root=True), ax.get_gridspec()
    assert figure is not None, "the panel is of a figure"
    return _SHARE_OF_PANEL * figure.get_figwidth() / (1 if grid is None else grid.ncols)


def add_key(
    figure: Figure, handles: Sequence[Any], names: Sequence[str], *, title: str = ""
) -> None:
    """Put one key above all panels, in as many columns as the figure is wide."""
    letters = figure.get_figwidth() * _LETTERS_AN_INCH
    longest = max(len(name) for name in names) + _HANDLE_LETTERS
    columns = max(1, min(len(names), int(letters // longest)))
    # Rows that are equally full look better than a last one with a single name.
    rows = -(-len(names) // columns)
    columns = -(-len(names) // rows)
    figure.legend(handles, names, loc="outside upper center", ncols=columns, title=title)


def distinct(names: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of all panels, each once, in the order in which they come first."""
    return list(dict.fromkeys(itertools.chain.from_iterable(names)))
