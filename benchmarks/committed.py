"""Compares today's benchmark figures with those in docs/performance.md.

Machines differ, so that only ratios are compared, each of which is to a baseline of its own run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figures import BenchmarkFigure, cells_of

# Ratios of two quiet runs of the same code differ by less, but for a few of lags.
_CHANGED_RATIO = 1.25
_ROW = re.compile(r"^\| `(?P<benchmark>\w+)` \| (?P<rest>.*) \|$")
_BETWEEN_CELLS = re.compile(r"(?<!\\) ?\| ?")
_CELL_COUNT = 8  # of a row, after the benchmark's name


@dataclass(frozen=True, slots=True)
class Committed:
    """The ratio that a figure had, and on which day, as it is written there."""

    ratio: float
    day: str


def read_committed(page: Path) -> dict[tuple[str, str], Committed]:
    """Return by benchmark and name of the figure what the page holds, where it has a ratio."""
    found: dict[tuple[str, str], Committed] = {}
    for line in page.read_text().splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        cells = [cell.strip() for cell in _BETWEEN_CELLS.split(row["rest"])]
        if len(cells) != _CELL_COUNT or cells[4] == "-":
            continue
        name = cells[0].replace(r"\|", "|")
        found[row["benchmark"], name] = Committed(float(cells[4]), cells[7])
    return found


def change_of(figure: BenchmarkFigure, committed: Committed | None) -> str:
    """Say by what factor its ratio is another one than it was, if it is more than chance."""
    if committed is None or figure.ratio is None or not committed.ratio or not figure.ratio:
        return "-"
    factor = figure.ratio / committed.ratio
    if 1 / _CHANGED_RATIO <= factor <= _CHANGED_RATIO:
        return "as before"
    if figure.limit and not figure.limit.startswith(("at least", "at most", "less", "ratio at")):
        return f"{factor:.2g} times"  # neither more nor less is better
    # A rate is better the larger it is, and everything else the smaller.
    is_better = (factor > 1) == figure.unit.endswith("/s")
    return f"{factor:.2g} times, {'better' if is_better else 'WORSE'}"


def print_beside(
    results: Mapping[str, Sequence[BenchmarkFigure]], committed: Mapping[tuple[str, str], Committed]
) -> None:
    """Print all figures to standard output, each beside what the page had of it."""
    table = Table(
        "", "figure", "ours", "baseline", "ratio", "committed", "change", "limit", "reached"
    )
    notes = []
    for benchmark, figures in results.items():
        for figure in figures:
            before = committed.get((benchmark, figure.name))
            name, ours, baseline, against, ratio, limit, reached = cells_of(figure)
            was = "-" if before is None else f"{before.ratio:.3g} ({before.day})"
            change = change_of(figure, before)
            line = (name, ours, f"{baseline} ({against})", ratio, was, change, limit, reached)
            table.add_row(benchmark, *line)
            if figure.note:
                notes.append(f"{benchmark}, {name}: {figure.note}")
    # Piped into a file, a line is as wide as it needs to be.
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
