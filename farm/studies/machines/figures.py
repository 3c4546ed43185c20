"""The machines study's figures: what the published study has, above what was measured here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.charts import chart
from farm.charts.chart import ChartAxis, ChartSeries, Mark
from farm.charts.files.charts import draw_charts
from farm.studies.machines.cells import CellTimes, MachineCell
from farm.studies.text import delay_ms, whole
from farm.text.display import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPOCH = ChartAxis(title="time of 70 steps (s)", write=lambda value: f"{value or 0:g}", is_log=True)
_EXAMPLE = ChartAxis(title="time per example", write=duration, is_log=True)
_MACHINES = ChartAxis(title="machines", write=lambda value: f"{value or 0:.0f}", is_counted=True)
_BATCH = ChartAxis(title="batch", write=lambda value: whole(round(value or 0)), is_log=True)


def paired_batches(published: CellTimes, own: CellTimes) -> list[tuple[int, int]]:
    """Pair each batch size of ours with the published one nearest in rank, least to most.

    Machines and data differ so much that equal batch sizes would not be equal work. What one
    machine of the study could not do is left out: its lines have nothing to begin with.
    """
    most, ours = published.large_batch, own.batches
    theirs = [batch for batch in published.batches if most is None or batch <= most]
    last = max(1, len(ours) - 1)
    places = [round(place * (len(theirs) - 1) / last) for place in range(len(ours))]
    return [(theirs[place], batch) for place, batch in zip(places, ours, strict=True)]


def draw_epochs(published: CellTimes, own: CellTimes) -> Figure:
    """Time of an epoch against machines: a panel for each batch size, a line for each delay."""
    pairs = paired_batches(published, own)
    delays_s = sorted({*published.delays_s, *own.delays_s})
    panels = [
        _epochs(source, batch, delays_s, who=who)
        for source, batches, who in (
            (published, [pair[0] for pair in pairs], "study"),
            (own, [pair[1] for pair in pairs], "here"),
        )
        for batch in batches
    ]
    drawn = draw_charts(_labelled_once(panels, len(pairs)), columns=len(pairs), row_height_in=2.7)
    # Whole numbers of machines need no more room.
    drawn.set_figwidth(max(4.8, 2.4 * len(pairs)))
    return drawn


def _epochs(source: CellTimes, batch: int, delays_s: Sequence[float], *, who: str) -> chart.Figure:
    # Delays of the other source have a series without marks, so that one key serves all panels.
    series = [
        ChartSeries(
            name=f"{delay_ms(delay_s)} ms",
            marks=[
                _mark(cell, x=cell.world_size, factor=cell.epoch_s / cell.step_time_s)
                for cell in source.beside(batch, delay_s)
                if delay_s in source.delays_s
            ],
        )
        for delay_s in delays_s
    ]
    title = f"{who}: batch {whole(batch)}"
    return chart.Figure(title=title, summary=title, x=_MACHINES, y=_EPOCH, series=series)


def draw_examples(published: CellTimes, own: CellTimes) -> Figure:
    """Time per example against batch size, a line for each number of machines."""
    delays_s = shared_delays_s(published, own)
    sizes = sorted({*published.world_sizes, *own.world_sizes})
    panels = [
        _examples(source, delay_s, sizes, who=who)
        for source, who in ((published, "study"), (own, "here"))
        for delay_s in delays_s
    ]
    return draw_charts(_labelled_once(panels, len(delays_s)), columns=len(delays_s))


def _labelled_once(panels: Sequence[chart.Figure], columns: int) -> list[chart.Figure]:
    """Leave the titles of axes to the panels on the left and at the bottom: all have the same."""
    last = len(panels) - columns
    return [
        dataclasses.replace(
            panel,
            x=panel.x if place >= last else dataclasses.replace(panel.x, title=""),
            y=panel.y if place % columns == 0 else dataclasses.replace(panel.y, title=""),
        )
        for place, panel in enumerate(panels)
    ]


def shared_delays_s(published: CellTimes, own: CellTimes) -> list[float]:
    """Return no delay, and the longest that both have; nothing shared: what ours begins with."""
    both = [delay_s for delay_s in own.delays_s if delay_s in published.delays_s]
    return sorted({both[0], both[-1]}) if both else own.delays_s[:1]


def _examples(source: CellTimes, delay_s: float, sizes: Sequence[int], *, who: str) -> chart.Figure:
    series = []
    for size in sizes:
        cells = [source.cell(size, batch, delay_s) for batch in source.batches]
        marks = [
            _mark(cell, x=cell.global_batch_size, factor=1 / cell.global_batch_size)
            for cell in cells
            if cell is not None
        ]
        series.append(
            ChartSeries(name="1 machine" if size == 1 else f"{size} machines", marks=marks)
        )
    title = f"{who}: {delay_ms(delay_s)} ms one way"
    return chart.Figure(title=title, summary=title, x=_BATCH, y=_EXAMPLE, series=series)


def _mark(cell: MachineCell, *, x: float, factor: float) -> Mark:
    """Return the step time times a factor, with its interval."""
    low, high = (None if end is None else factor * end for end in (cell.low_s, cell.high_s))
    return Mark(x=x, y=factor * cell.step_time_s, low=low, high=high)
