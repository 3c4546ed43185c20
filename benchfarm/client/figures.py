"""Draws the figures of a farm with matplotlib, from their JSON description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from benchfarm.client.errors import ClientError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from farm.charts.chart import ChartAxis


def new_axes() -> Axes:
    """Return the axes of a new figure, which a notebook shows by itself.

    Raises:
        ClientError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ClientError("figures need matplotlib: pip install 'benchfarm[plot]'") from None
    return pyplot.subplots(layout="constrained")[1]


def draw_figure(found: Mapping[str, Any], axes: Axes | None) -> Axes:
    """Draw a figure, as the farm's API describes it, into these axes or new ones."""
    axes = new_axes() if axes is None else axes
    # Only who draws needs these.
    from farm.charts.chart import ChartSeries, Figure, Mark
    from farm.charts.files.charts import draw_panel

    # A newer farm may say more of a mark, and an older one less.
    known = {field.name for field in fields(Mark)}
    series = [
        ChartSeries(
            name=one["name"],
            marks=[Mark(**{k: mark[k] for k in known & mark.keys()}) for mark in one["marks"]],
        )
        for one in found["series"]
    ]
    shown = Figure(
        title=found["title"],
        summary=found["summary"],
        x=_axis(found["x"]),
        y=_axis(found["y"]),
        series=series,
    )
    draw_panel(axes, shown)
    return axes


def _axis(found: Mapping[str, Any]) -> ChartAxis:
    from farm.charts.chart import ChartAxis
    from farm.text.display import decimal

    texts = {tick["value"]: tick["text"] for tick in found["ticks"]}
    return ChartAxis(
        title=found["title"],
        write=lambda value: texts.get(value) or decimal(value),
        is_log=found["is_log"],
        is_counted=found["is_counted"],
    )
