"""The page that shows what accuracy a sweep's trainings reached, and how soon.

Statistical efficiency is how much accuracy an epoch brings at a global batch size. Together with
the time of an epoch it determines the time to an accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from flask import Blueprint
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.cells.accurate_cells import accurate_cells
from farm.cells.configuration import configuration_of
from farm.charts.chart import STYLES, ChartAxis, ChartSeries, Figure, Mark
from farm.configuration.axes import AXES
from farm.configuration.axis import Value
from farm.configuration.words import setup_words
from farm.measuring.learning_curves import mean_curve
from farm.registry import catalogue
from farm.store.measurements.trained_cells import TrainedCell, trained_cells
from farm.store.sweeps.sweeps import find_sweep, sweep_summary
from farm.text.display import count, percent
from farm.text.plurals import counted
from web import parameters, request_body
from web.access.scopes import costly
from web.backend import backend, read_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn
from web.parameters import NUMBER, Parameters

bp = Blueprint("accuracy", __name__)

MOST_JOBS = 5000
_CELLS_SHOWN = 200


class AccuracyParameters(Parameters):
    """`target`: the accuracy to reach, in percent; 0 is none."""

    target: Annotated[float, Field(ge=0, le=100), NUMBER] | None = None


_BATCH = 3  # where `_names` has it


# What a line of the figure is of: workload, strategy, batch, ranks and set-up.
_Learning: TypeAlias = tuple[Value, ...]


@bp.get("/sweeps/<sweep_id>/accuracy")
@costly
def get_accuracy(sweep_id: str) -> ResponseReturnValue:
    """Show accuracy by epoch. Query: `target`, in percent, for time and cost to reach it."""
    number = request_body.row_id("sweep", sweep_id)
    percentage = parameters.read(AccuracyParameters, is_empty_absent=True).target
    with read_session() as session:
        sweep_summary(session, number)
        name = find_sweep(session, str(number)).name
        trained = trained_cells(session, number, max_jobs=MOST_JOBS)
    figure = accuracy_figure(trained.cells)
    found = accurate_cells(
        trained.cells,
        target_ratio=percentage / 100 if percentage else None,
        prices_usd_per_hour=backend().prices.usd_per_hour,
    )
    return page_with_charts(
        "accuracy.html",
        sweep_id=number,
        name=name,
        target=percentage or None,
        figure=None if figure is None else drawn(figure),
        cells=found[:_CELLS_SHOWN],
        cell_count=len(found),
        is_complete=trained.is_complete,
    )


def accuracy_figure(cells: Sequence[TrainedCell]) -> Figure | None:
    """Draw the mean accuracy after each epoch, a line for each way of learning.

    World size and network change nothing in what synchronous replicas learn in an epoch, so that
    those of one strategy are one line. Of more lines than colours the first; None without any.
    """
    groups: dict[_Learning, list[TrainedCell]] = {}
    for cell in cells:
        groups.setdefault(_learning(cell), []).append(cell)
    shown = sorted(groups)[:STYLES]
    if not shown:
        return None
    # Told only where it differs; a batch always.
    names = {key: _names(key) for key in groups}
    shown_fields = [
        i for i in range(6) if i == _BATCH or len({name[i] for name in names.values()}) > 1
    ]
    series = []
    for key in shown:
        curve = mean_curve([curve for cell in groups[key] for curve in cell.curves])
        name = ", ".join(names[key][i] for i in shown_fields if names[key][i])
        marks = [Mark(x=float(n), y=ratio) for n, ratio in enumerate(curve, start=1)]
        series.append(ChartSeries(name=name, marks=marks))
    best = max(series, key=lambda one: one.marks[-1].y)
    left_out = f"; {len(groups) - len(shown)} more are left out" if len(groups) > STYLES else ""
    return Figure(
        title="Accuracy by epoch",
        summary=f"{best.name} got to {percent(best.marks[-1].y, 1)}{left_out}",
        x=ChartAxis(title="Epoch", write=count, is_counted=True),
        y=ChartAxis(title="Accuracy", write=percent),
        series=series,
    )


def _learning(cell: TrainedCell) -> _Learning:
    """Return what can change what is learnt in an epoch; 0 ranks: their number changes nothing."""
    configuration = configuration_of(cell.spec)
    facts = catalogue().strategies.get(configuration["strategy"])
    learnt: dict[str, Value] = {
        axis.field: value
        for axis, value in zip(AXES, configuration.place, strict=True)
        if not axis.is_of_speed and not axis.is_of_network
    }
    rank_count = 0 if facts is not None and facts.is_synchronous else configuration["world_size"]
    set_up = ", ".join(setup_words(learnt))
    sizes = (configuration["global_batch_size"], rank_count)
    return (
        configuration["model"],
        configuration["dataset"],
        configuration["strategy"],
        *sizes,
        set_up,
    )


def _names(key: _Learning) -> tuple[str, ...]:
    """Return what its line may be called, of which an empty one says nothing."""
    model, dataset, strategy, batch_size, rank_count, set_up = key
    ranks = counted(int(rank_count or 0), "rank", write=count) if rank_count else ""
    batch = f"batch {count(int(batch_size or 0))}"
    return (str(model), str(dataset), str(strategy), batch, ranks, str(set_up))
