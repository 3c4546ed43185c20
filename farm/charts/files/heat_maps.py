"""Draws heat maps for paper, with a number in every field."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING

from farm.charts.files.style import panels
from farm.charts.heat_map import SHADES, Field, FieldKind, HeatMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One hue from light to dark, so that a copy in grey keeps the order. Black can be read on each.
_TONES = ("#f3f7fc", "#d7e4f7", "#bcd3f1", "#9dbfea", "#7caae2", "#5b93d8")
_FAILED, _EMPTY = "#f6dfd3", "#f4f4f4"
_FIELD_WIDTH_IN, _FIELD_HEIGHT_IN = 0.72, 0.34
_LETTERS_AN_INCH = 13
_LEAST_WIDTH_IN = 2.8  # of the fields together: the title stands above them
_MOST_LETTERS = 28  # of the name of a row, in one line


def draw_map(shown: HeatMap) -> Figure:
    """Draw it as large as its fields need; held and omitted values are named below the title.

    Raises:
        FarmError: matplotlib is not installed.
    """
    assert len(_TONES) == SHADES, "a tone for each shade"
    shown = _without_empty(shown)
    rows = ["\n".join(textwrap.wrap(name, _MOST_LETTERS)) for name in shown.rows]
    letters = max((len(line) for name in rows for line in name.split("\n")), default=0)
    names_in = 0.5 + letters / _LETTERS_AN_INCH
    widest = max(
        (
            len(text)
            for text in [*shown.columns, *(field.text for row in shown.fields for field in row)]
        ),
        default=0,
    )
    field_width_in = max(_FIELD_WIDTH_IN, (widest + 1.5) / _LETTERS_AN_INCH)
    inner_in = max(_LEAST_WIDTH_IN, field_width_in * len(shown.columns))
    title = _wrapped_title(shown, inner_in)
    height_in = 0.8 + 0.16 * title.count("\n") + _FIELD_HEIGHT_IN * max(1, len(shown.rows))
    with panels(1, 1, width_in=names_in + inner_in, row_height_in=height_in) as (figure, [ax]):
        for j, row in enumerate(shown.fields):
            for i, field in enumerate(row):
                _field(ax, field, i, j)
        ax.set_title(title, loc="left")
        ax.set_xticks(range(len(shown.columns)), shown.columns)
        ax.set_yticks(range(len(rows)), rows)
        ax.set(
            xlim=(-0.5, len(shown.columns) - 0.5),
            ylim=(len(rows) - 0.5, -0.5),
            xlabel=shown.x_title,
            ylabel=shown.y_title,
        )
        ax.grid(visible=False)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    return figure


def _without_empty(shown: HeatMap) -> HeatMap:
    """Leave out the rows and columns where the sweep has no cell at what is held."""
    absent = (FieldKind.MISSING, FieldKind.ELSEWHERE, FieldKind.IMPOSSIBLE)
    there = [[field.kind not in absent for field in row] for row in shown.fields]
    rows = [j for j, row in enumerate(there) if any(row)]
    columns = [i for i in range(len(shown.columns)) if any(row[i] for row in there)]
    empty = [name for j, name in enumerate(shown.rows) if j not in rows]
    empty += [name for i, name in enumerate(shown.columns) if i not in columns]
    if not empty or not rows:
        return shown
    reason = f"{', '.join(empty)}: no cell at what is held"
    return dataclasses.replace(
        shown,
        columns=[shown.columns[i] for i in columns],
        rows=[shown.rows[j] for j in rows],
        fields=[[shown.fields[j][i] for i in columns] for j in rows],
        left_out=f"{shown.left_out}; {reason}" if shown.left_out else reason,
    )


def _wrapped_title(shown: HeatMap, width_in: float) -> str:
    lines = [shown.title, shown.held, *shown.remarks]
    lines += [f"Left out: {shown.left_out}"] if shown.left_out else []
    letters = int(width_in * _LETTERS_AN_INCH)
    return "\n".join(part for line in lines for part in textwrap.wrap(line, letters))


def _field(ax: Axes, field: Field, column: int, row: int) -> None:
    from matplotlib.patches import Rectangle

    is_failed = field.kind is FieldKind.FAILED
    tone = _FAILED if is_failed else _EMPTY
    if field.shade is not None:
        tone = _TONES[field.shade]
    ax.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5),
            1.0,
            1.0,
            facecolor=tone,
            edgecolor="white",
            linewidth=1.5,
        )
    )
    ax.text(
        column,
        row,
        field.text,
        ha="center",
        va="center",
        color="black" if field.kind in (FieldKind.KNOWN, FieldKind.FAILED) else "#666666",
        style="italic" if is_failed else "normal",
    )
