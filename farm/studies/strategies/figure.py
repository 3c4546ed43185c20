"""The strategies study's figure: step time, idleness and accuracy of each, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.charts.bars import Bars, BarSeries
from farm.charts.chart import ChartAxis, Mark
from farm.charts.files.bars import draw_bars
from farm.studies.strategies.rows import StrategyRow
from farm.text.display import duration, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By role, as the table beside it.
_PANELS = {
    "step_time_s": ChartAxis(title="step time", write=duration),
    "idle_ratio": ChartAxis(title="idle, of a step", write=percent),
    "accuracy": ChartAxis(title="accuracy after an epoch", write=percent),
}


def draw_strategies(rows: Sequence[StrategyRow]) -> Figure:
    """Draw a bar for each configuration, with the least and the most of its runs."""
    shown = [_bars(rows, column, axis) for column, axis in _PANELS.items()]
    return draw_bars(shown, columns=len(shown), is_lying=True)


def _bars(rows: Sequence[StrategyRow], column: str, axis: ChartAxis) -> Bars:
    kinds = {"one machine": False, "several machines": True}
    return Bars(
        title=axis.title,
        summary="the median of the runs, from their least to their most",
        x="strategy",
        y=axis,
        groups=[f"{row.strategy}, {row.setting}" for row in rows],
        series=[
            BarSeries(
                name=name,
                marks=[
                    _mark(row, column, place) if (row.gang.world_size > 1) is is_gang else None
                    for place, row in enumerate(rows)
                ],
            )
            for name, is_gang in kinds.items()
        ],
    )


def _mark(row: StrategyRow, column: str, place: int) -> Mark | None:
    middle, ends = row.median_of(column), row.span_of(column)
    if middle is None or ends is None:
        return None
    return Mark(x=float(place), y=middle, low=ends[0], high=ends[1])
