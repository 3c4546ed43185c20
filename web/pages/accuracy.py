"""The page about the accuracy that a sweep's trainings reached, and after what time."""

from __future__ import annotations

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import MultiDict

from farm.cells.accurate_cells import accurate_cells
from farm.store.measurements.trained_cells import trained_cells
from farm.store.sweeps.sweeps import find_sweep, sweep_summary
from web import parameters, received
from web.access.scopes import costly
from web.backend import backend, read_session
from web.drawing.drawn import drawn
from web.drawing.plotly import page_with_charts
from web.sweep.accuracy import accuracy_figure

bp = Blueprint("accuracy", __name__)

MOST_JOBS = 5000
_CELLS_SHOWN = 200
_TARGET = parameters.number(
    "target", "The accuracy to reach, in percent.", low=0.0, high=100.0, is_above_low=True
)


@bp.get("/sweeps/<sweep_id>/accuracy")
@costly
def get_accuracy(sweep_id: str) -> ResponseReturnValue:
    """Show accuracy by epoch. Query: `target`, in percent, for time and cost to reach it."""
    number = received.row_id("sweep", sweep_id)
    received.query("target")
    filled: MultiDict[str, str] = MultiDict({k: v for k, v in request.args.items() if v.strip()})
    percentage = parameters.read_from(filled, (_TARGET,))[_TARGET]
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
