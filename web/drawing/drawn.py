"""A figure as its template shows it: a table, and what plotly draws over it where scripts run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from markupsafe import Markup

from farm.charts.bars import Bars
from farm.charts.chart import Figure
from farm.charts.figure_table import FigureTable, table_of
from farm.charts.heat_map import HeatMap
from farm.charts.histogram import Histogram
from farm.charts.timelines import TimelineFigure
from web.drawing.plotly_bars import bars_to_plotly
from web.drawing.plotly_figure import in_page, to_plotly
from web.drawing.plotly_histogram import histogram_to_plotly
from web.drawing.plotly_map import map_to_plotly
from web.drawing.plotly_timeline import timeline_to_plotly

AnyFigure: TypeAlias = Figure | Bars | Histogram | TimelineFigure | HeatMap
_F = TypeVar("_F", bound=AnyFigure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(Generic[_F]):
    """`json`: what the script reads; empty where there is nothing to draw.

    `table` None: the page has a table of its own, as of a heat map.
    """

    figure: _F
    json: Markup
    table: FigureTable | None


def drawn(figure: _F) -> Drawn[_F]:
    """Return all that a template needs to show a figure."""
    table = None if isinstance(figure, HeatMap) else table_of(figure)
    is_empty = table is not None and not table.rows
    json = Markup("") if is_empty else in_page(_plotly(figure))
    return Drawn(figure=figure, json=json, table=table)


def _plotly(figure: AnyFigure) -> dict[str, object]:
    match figure:
        case Bars():
            return bars_to_plotly(figure)
        case Histogram():
            return histogram_to_plotly(figure)
        case TimelineFigure():
            return timeline_to_plotly(figure)
        case HeatMap():
            return map_to_plotly(figure)
        case Figure():
            return to_plotly(figure)
