"""A value of a cell with its interval, as a mark of a chart. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from farm.cells.choice import CellMetric
from farm.cells.table import CellLine
from farm.charts.chart import ChartAxis, Mark
from farm.text.nouns import counted


@dataclass(frozen=True, slots=True)
class Told:
    """A value of a cell with its interval; None: nothing tells it."""

    value: float
    low: float | None
    high: float | None


def told_of(line: CellLine, metric: CellMetric) -> Told | None:
    """Return a metric of a cell, as uncertain as its step time; None where it is not known.

    Of an efficiency, the uncertainty of one machine comes on top.
    """
    value, known = metric.read(line), line.statistics
    if value is None:
        return None
    middle_s, low_s, high_s = known.median_s, known.low_s, known.high_s
    if not metric.time_power or not middle_s or low_s is None or high_s is None:
        return Told(value, None, None)
    ends = [value * (end_s / middle_s) ** metric.time_power for end_s in (low_s, high_s)]
    return Told(value, min(ends), max(ends))


def mark_of(
    told: Told, name: str, line: CellLine, *, x: float, y: ChartAxis, is_solid: bool = True
) -> Mark:
    """Return a mark that says its name, its value and on how much it rests."""
    known = len(line.times_s)
    disturbed = f", {line.disturbed_count} disturbed" if line.disturbed_count else ""
    interval = ""
    if told.low is not None and told.high is not None:
        interval = f" (95 %: {y.write(told.low)} to {y.write(told.high)})"
    return Mark(
        x=x,
        y=told.value,
        low=told.low,
        high=told.high,
        is_solid=is_solid,
        note=f"{name}: {y.write(told.value)}{interval}, {counted(known, 'repetition')}{disturbed}",
    )
