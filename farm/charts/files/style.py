"""Style of printed figures, readable by the colour-blind: axes, intervals, legends, and files."""

from __future__ import annotations

import importlib.util
import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farm.charts.chart import ChartAxis, ChartEvent, Mark, ends, ticks
from farm.errors import FarmError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008, "Color universal design": told apart by the colour-blind. Yellow is left out,
# which paper does not show. Markers and dashes differ as well, for print without colours.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("s", "o", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("--", "-", (0, (6, 1.5)), "-.", ":", (0, (3, 1)), (0, (1, 1)))
FORMS = ("png", "svg", "pdf")
_DPI = 160
# Any, since matplotlib's own type would list its six hundred names.
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "errorbar.capsize": 3,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    # Names are those that users gave, and no formulas.
    "text.parse_math": False,
    # Equal figures are equal files, or every page would change with every run.
    "svg.hashsalt": "benchfarm",
}

_LETTERS_AN_INCH = 13  # of the figures' letters, about
_SHARE_OF_PANEL = 0.8  # of a panel's width is left for what stands below it
_USELESS_ZEROS = re.compile(r"(\.\d*?)0+(?!\d)")
_ROOM_AT_ZERO_RATIO = 0.025
_ROOM_RATIO = 0.06  # on either side of the places of an axis
_HANDLE_LETTERS = 6  # as wide as so many letters is what stands before a name


def require() -> None:
    """Raise FarmError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FarmError(
            "figures need matplotlib: pip install 'benchfarm[plot]' (matplotlib is absent)"
        )


def paper_style() -> AbstractContextManager[None]:
    """Draw in the common style until the end of the block; matplotlib is installed."""
    import matplotlib as mpl

    return mpl.rc_context(_STYLE)


@contextmanager
def panels(
    rows: int, columns: int, *, width_in: float = 7.2, row_height_in: float = 2.6
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure of `rows` x `columns` panels in the common style, its axes by row.

    Raises:
        FarmError: matplotlib is not installed.
    """
    require()
    from matplotlib.figure import Figure

    with paper_style():
        # No pyplot: its figures live on until they are closed, and it looks for a display.
        figure = Figure(figsize=(width_in, row_height_in * rows), layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(
    figure: Figure, folder: Path, name: str, *, forms: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure as NAME.png and so on; return the paths. Equal figures are equal files."""
    paths = [folder / f"{name}.{form}" for form in forms]
    for path in paths:
        path.write_bytes(file_of(figure, path.suffix[1:]))
    return paths


def file_of(figure: Figure, form: str) -> bytes:
    """Return the content of a file of that form, one of FORMS."""
    # What tells when and by what it was made would make equal figures different files.
    metadata: dict[str, None] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[form]
    content = io.BytesIO()
    with paper_style():
        figure.savefig(content, format=form, dpi=_DPI, metadata=metadata)
    if form == "svg":
        # Its lines end in spaces, which no text file of a repository should.
        return b"\n".join(line.rstrip() for line in content.getvalue().splitlines()) + b"\n"
    return content.getvalue()


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
