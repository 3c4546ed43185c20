"""The strategies study's figure: step time, idleness and accuracy of each, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.plotting.look import COLOURS, panels
from farm.studies.strategies.rows import StrategyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT_IN = 0.24
# Column, title and factor to the unit of the title. By role, as the table beside it.
_PANELS = (
    ("step_time_s", "step time (ms)", 1000.0),
    ("idle_ratio", "idle (% of a step)", 100.0),
    ("accuracy", "accuracy after an epoch (%)", 100.0),
)


def draw_strategies(rows: Sequence[StrategyRow]) -> Figure:
    """Draw a bar for each configuration, with the least and the most of its runs."""
    height_in = 0.7 + _ROW_HEIGHT_IN * len(rows)
    with panels(1, len(_PANELS), row_height_in=height_in, width_in=9.0) as (figure, axes):
        for index, (axis, (column, title, factor)) in enumerate(zip(axes, _PANELS, strict=True)):
            _bars(axis, rows, column, factor)
            axis.set_title(title)
            axis.set_yticks(range(len(rows)))
            names = [f"{row.strategy}, {row.setting}" for row in rows] if index == 0 else []
            axis.set_yticklabels(names or [""] * len(rows))
            axis.invert_yaxis()
            axis.grid(visible=False, axis="y")
    return figure


def _bars(axis: Axes, rows: Sequence[StrategyRow], column: str, factor: float) -> None:
    for place, row in enumerate(rows):
        middle, ends = row.median_of(column), row.span_of(column)
        if middle is None or ends is None:
            continue
        spread = [[factor * (middle - ends[0])], [factor * (ends[1] - middle)]]
        colour = COLOURS[1] if row.gang.world_size > 1 else COLOURS[0]
        axis.barh(place, factor * middle, color=colour, height=0.7)
        axis.errorbar(factor * middle, place, xerr=spread, color=COLOURS[2], fmt="none")
