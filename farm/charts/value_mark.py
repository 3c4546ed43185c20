"""Converts the value of a cell and its interval to a mark of a chart. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from farm.cells.choice import CellMetric
from farm.cells.table import CellLine
from farm.charts.chart import ChartAxis, Mark
from farm.text.nouns import counted


@dataclass(frozen=True, slots=True)
class MarkedValue:
    """A value of a cell with its interval; None: the end is not known."""

    value: float
    low: float | None
    high: float | None


def marked_value(line: CellLine, metric: CellMetric) -> MarkedValue | None:
    """Return a metric of a cell, as uncertain as its step time; None where it is not known.

    Of an efficiency, the uncertainty of one machine comes on top.
    """
    value, known = metric.read(line), line.statistics
    if value is None:
        return None
    middle_s, low_s, high_s = known.median_s, known.low_s, known.high_s
    if not metric.time_power or not middle_s or low_s is None or high_s is None:
        return MarkedValue(value, None, None)
    ends = [value * (end_s / middle_s) ** metric.time_power for end_s in (low_s, high_s)]
    return MarkedValue(value, min(ends), max(ends))


def mark_of(
    marked: MarkedValue, name: str, line: CellLine, *, x: float, y: ChartAxis, is_solid: bool = True
) -> Mark:
    """Return a mark that says its name, its value and on how much it rests."""
    count = counted(len(line.times_s), "repetition")
    disturbed = f", {line.disturbed_count} disturbed" if line.disturbed_count else ""
    interval = ""
    if marked.low is not None and marked.high is not None:
        interval = f" (95 %: {y.write(marked.low)} to {y.write(marked.high)})"
    return Mark(
        x=x,
        y=marked.value,
        low=marked.low,
        high=marked.high,
        is_solid=is_solid,
        note=f"{name}: {y.write(marked.value)}{interval}, {count}{disturbed}",
    )
