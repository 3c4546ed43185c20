"""All figures of a sweep's cells, by the names of their files. Pure."""

from __future__ import annotations

from farm.cells.choice import METRICS, Choice
from farm.cells.table import SweepTable
from farm.charts.bars import Bars
from farm.charts.chart import Figure
from farm.charts.metric_lines import line_figures
from farm.charts.pareto import cost_against_time
from farm.charts.sweep_bars import bars_of

# Of the charts along an axis: the name of the file, and of the metric.
LINES = {"time": "step_time", "efficiency": "efficiency", "cost": "cost"}
BARS, PARETO = "bars", "cost-time"


def figures_of(table: SweepTable, choice: Choice) -> dict[str, Figure | Bars]:
    """Return what can be drawn; nothing where nothing is known."""
    metrics = {metric.name: metric for metric in METRICS}
    lines = line_figures(table, choice, [metrics[of] for of in LINES.values()])
    figures: dict[str, Figure | Bars | None] = dict(zip(LINES, lines, strict=True))
    figures[PARETO] = cost_against_time(table, choice)
    figures[BARS] = bars_of(table, choice)
    return {name: figure for name, figure in figures.items() if figure is not None}
