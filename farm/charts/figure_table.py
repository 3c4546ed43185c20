"""Writes a figure as a table, for browsers without scripts and for screen readers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from farm.charts.chart import Bars, ChartAxis, Figure, Mark
from farm.charts.histogram import Histogram
from farm.charts.timelines import TimelineFigure, write_second
from farm.text.display import MISSING, count, duration

MOST_FIGURE_ROWS = 100
TableRow: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FigureTable:
    """`rows` have a text for each of the titles; `left_out`: the number of omitted rows."""

    titles: TableRow
    rows: tuple[TableRow, ...]
    left_out: int = 0


def figure_table(figure: Figure | Bars | Histogram | TimelineFigure) -> FigureTable:
    """Return the values that a figure shows. Of a line over seconds, its least and its most."""
    if isinstance(figure, Figure):
        titles: TableRow = ("", figure.x.title, figure.y.title, "Interval")
        rows = list(_of_marks(figure))
    elif isinstance(figure, Bars):
        titles, rows = (figure.x, "", figure.y.title, "Interval"), list(_of_bars(figure))
    elif isinstance(figure, Histogram):
        titles = ("Step time", "Steps")
        rows = [
            (f"{duration(b.low_s)} to {duration(b.high_s)}", count(b.count)) for b in figure.bins
        ]
    else:
        titles = ("", "From", "To", "Least", "Most")
        rows = list(_of_lines(figure))
    return FigureTable(titles, tuple(rows[:MOST_FIGURE_ROWS]), max(0, len(rows) - MOST_FIGURE_ROWS))


def _of_marks(figure: Figure) -> Iterator[TableRow]:
    for series in figure.series:
        for mark in series.marks:
            place, value = figure.x.write(mark.x), figure.y.write(mark.y)
            yield series.name, place, value, _interval(mark, figure.y)
    for event in figure.events:
        yield event.text, figure.x.write(event.x), MISSING, MISSING


def _of_bars(figure: Bars) -> Iterator[TableRow]:
    for place, group in enumerate(figure.groups):
        for number, mark in figure.of_group(place):
            name, value = figure.series[number].name, figure.y.write(mark.y)
            yield group, name, value, _interval(mark, figure.y)


def _interval(mark: Mark, axis: ChartAxis) -> str:
    if mark.low is None or mark.high is None:
        return MISSING
    return f"{axis.write(mark.low)} to {axis.write(mark.high)}"


def _of_lines(figure: TimelineFigure) -> Iterator[TableRow]:
    for line in figure.lines:
        axis = figure.over if line.is_over and figure.over is not None else figure.quantity
        known = [(second, value) for second, value in line.points if value is not None]
        if known:
            values = [value for _, value in known]
            seconds = write_second(known[0][0]), write_second(known[-1][0])
            yield line.name, *seconds, axis.write(min(values)), axis.write(max(values))
