"""The page that shows how well each cell of a sweep is predicted from the others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from flask import Blueprint
from flask.typing import ResponseReturnValue

from farm.charts.chart import Figure
from farm.charts.prediction import prediction_figures
from farm.errors import FarmError, NotFound
from farm.gang.lifecycle import JobState, SweepState
from farm.processes.subprocess_call import run_in_subprocess
from farm.recommend.configuration import Observation
from farm.recommend.observations import load_sweep
from farm.store.sweeps.sweeps import SweepSummary, find_sweep, sweep_summary
from web import parameters, request_body
from web.access.scopes import costly
from web.backend import backend, read_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn

bp = Blueprint("prediction", __name__)

_PARTS = 10  # of a running sweep: it is predicted again this often
# Ten fits of more take longer than anybody waits for a page; `farm plot` makes them, too.
MOST_MEASUREMENTS = 600


@bp.get("/sweeps/<sweep_id>/prediction")
@costly
def get_prediction(sweep_id: str) -> ResponseReturnValue:
    """Show predicted against measured step times.

    It takes seconds to predict. Until then the page says so, and loads itself again.
    """
    parameters.query()
    number = request_body.row_id("sweep", sweep_id)
    with read_session() as session:
        summary = sweep_summary(session, number)
        name = find_sweep(session, str(number)).name
        # To read thousands of them would take as long as a page may.
        count = summary.counts[JobState.SUCCEEDED]
        kinds = list(load_sweep(session, number).values()) if count <= MOST_MEASUREMENTS else []
    observations = tuple(kinds[0].observations) if kinds else ()
    figures: dict[str, Figure] = {}
    is_made, why = False, None
    try:
        if count > MOST_MEASUREMENTS:
            raise NotFound(
                f"{count} measurements are more than a page predicts; "
                f"farm plot {number} --kind prediction draws them, in minutes"
            )
        made = backend().predictions.ask(
            _key(summary, observations), lambda: run_in_subprocess(prediction_figures, observations)
        )
        is_made, figures = made is not None, {} if made is None else made.value
    except FarmError as error:
        why = str(error)
    return page_with_charts(
        "prediction.html",
        sweep_id=number,
        name=name,
        kind_count=len(kinds),
        is_made=is_made or why is not None,
        why=why,
        figures={key: drawn(figure) for key, figure in figures.items()},
    )


def _key(summary: SweepSummary, observations: Sequence[Observation]) -> Hashable:
    """Name what the answer follows from; while a sweep goes on, each result need not change it."""
    sizes: Hashable = len(observations) * _PARTS // max(1, summary.job_count)
    if summary.state is SweepState.FINISHED:
        sizes = tuple((one.measurement_id, one.weight) for one in observations)
    return summary.sweep_id, sizes
