"""Prepares the figures of a sweep for files, the same as on its page. Reads the store."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from farm.cells.axes import named_together
from farm.cells.choice import CELL_METRICS, Choice
from farm.cells.configuration import configuration_of
from farm.cells.table import CellState, SweepTable
from farm.charts.heat_map import heat_map
from farm.charts.metric_lines import line_panels, no_lines, nothing_known
from farm.charts.sweep_figures import BARS, LINES, PARETO, bars_of, cost_against_time
from farm.configuration.spec import ServerPlacement
from farm.configuration.sweep_cell import shown
from farm.errors import NotFound

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sqlalchemy.orm import Session

_MOST_RANKS = 12  # of a job, drawn apart
_MEASURED_OF_RANKS = 4  # CPU, memory, received, sent; what disturbed is of the job's page


class PlotKind(enum.StrEnum):
    """A kind of plot, as the command names it."""

    LINES = "lines"
    BARS = "bars"
    MAP = "map"
    PARETO = "pareto"
    SERIES = "series"
    HISTORY = "history"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """`name`: of the file. `draw` draws it, `summary` describes it."""

    kind: PlotKind
    name: str
    title: str
    summary: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRequest:
    """A request for plots. `is_of_metric`: the metric was named, and only it is drawn.

    `job_id`: whose series, or of which cell the history; None: of the first that is fit.
    """

    sweep_id: int
    choice: Choice
    is_of_metric: bool = False
    job_id: int | None = None


def plots_of(
    session: Session,
    table: SweepTable,
    request: PlotRequest,
    kind: PlotKind,
    *,
    show: Callable[[int, int], None] | None = None,
) -> Iterator[Plot]:
    """Yield the plots of a kind. `show`: called with the done and total number of fits.

    Raises:
        FarmError: the sweep has nothing for it; the message says why.
    """
    if kind is PlotKind.SERIES:
        yield _series(session, table, request)
    elif kind is PlotKind.HISTORY:
        yield _history(session, request)
    elif kind is PlotKind.PREDICTION:
        yield _prediction(session, request, show=show)
    else:
        makers = {
            PlotKind.LINES: _lines,
            PlotKind.BARS: _bars,
            PlotKind.MAP: _map,
            PlotKind.PARETO: _pareto,
        }
        yield from makers[kind](table, request)


def _lines(table: SweepTable, request: PlotRequest) -> Iterator[Plot]:
    from farm.charts.files.charts import draw_charts

    if request.choice.along is None:
        raise NotFound(no_lines(request.choice))
    wanted = set(LINES.values())
    if request.is_of_metric:
        wanted = {request.choice.metric.name}
    files = {metric: name for name, metric in LINES.items()}
    is_any = False
    for metric in CELL_METRICS:
        figures = line_panels(table, request.choice, metric) if metric.name in wanted else []
        if figures:
            is_any = True
            first = figures[0]
            along = f"{first.y.title} against {first.x.title.lower()}"
            yield Plot(
                kind=PlotKind.LINES,
                name=files.get(metric.name, metric.name.replace("_", "-")),
                title=along,
                summary=first.summary if len(figures) == 1 else f"{len(figures)} panels",
                draw=partial(draw_charts, figures, columns=2 if len(figures) < 5 else 3),
            )
    if not is_any:
        raise NotFound(nothing_known(request.choice))


def _bars(table: SweepTable, request: PlotRequest) -> Iterator[Plot]:
    from farm.charts.files.bars import draw_bars

    bars = bars_of(table, request.choice)
    if bars is None:
        raise NotFound(nothing_known(request.choice))
    yield Plot(
        kind=PlotKind.BARS,
        name=BARS,
        title=bars.title,
        summary=bars.summary,
        draw=partial(draw_bars, [bars]),
    )


def _map(table: SweepTable, request: PlotRequest) -> Iterator[Plot]:
    from farm.charts.files.heat_maps import draw_map

    filled = heat_map(table, request.choice)
    if filled is None:
        raise NotFound("there is no map to draw: this sweep varies nothing that is not held")
    if filled.least is None:
        raise NotFound(nothing_known(request.choice))
    yield Plot(
        kind=PlotKind.MAP,
        name=PlotKind.MAP.value,
        title=filled.title,
        summary=filled.summary,
        draw=partial(draw_map, filled),
    )


def _pareto(table: SweepTable, request: PlotRequest) -> Iterator[Plot]:
    from farm.charts.files.charts import draw_charts

    figure = cost_against_time(table, request.choice)
    if figure is None:
        raise NotFound("there is no front to draw: fewer than two cells have a time per epoch")
    yield Plot(
        kind=PlotKind.PARETO,
        name=PARETO,
        title=figure.title,
        summary=figure.summary,
        draw=partial(draw_charts, [figure], columns=1, row_height_in=3.4),
    )


def _series(session: Session, table: SweepTable, request: PlotRequest) -> Plot:
    from farm.charts.files.timelines import draw_timelines
    from farm.charts.job.reading import ChartSelection, read_job, timed_window
    from farm.store.sweeps.jobs import job_detail

    job_id = request.job_id or _first_gang(table, request.choice)
    detail = job_detail(session, job_id)
    if detail.job.sweep_id != request.sweep_id:
        raise NotFound(f"job {job_id}: it is of sweep {detail.job.sweep_id}, not of this one")
    if not detail.attempts:
        raise NotFound(f"job {job_id}: it has not begun, so there is nothing to draw of it")
    last = detail.attempts[-1]
    what = configuration_of(detail.job.spec)
    servers = what["server_placement"]
    selection = ChartSelection(
        ranks=tuple(rank.rank for rank in last.ranks)[:_MOST_RANKS],
        servers=None if servers is None else ServerPlacement(servers),
        training_count=what.training_machine_count,
    )
    chief = next((rank for rank in last.ranks if rank.rank == 0), None)
    read = read_job(session, last.attempt, selection, timed_window=timed_window(chief))
    # Without servers every rank has the same role, and its own line.
    by_role = list(read.roles) or list(read.ranks)[:_MEASURED_OF_RANKS]
    timelines = [
        timeline
        for timeline in by_role
        if any(
            value is not None
            for line in timeline.lines
            if not line.is_over
            for _, value in line.points
        )
    ]
    if not timelines:
        raise NotFound(f"job {job_id}: no sample of its ranks was stored")
    place = next(
        (
            p
            for p, line in zip(table.places, table.lines, strict=True)
            if line.cell_hash == detail.job.cell_hash
        ),
        (),
    )
    title = f"Job {job_id}: {named_together(table.axes, place)}".removesuffix(": ")
    return Plot(
        kind=PlotKind.SERIES,
        name=f"series-job-{job_id}",
        title=title,
        summary="; ".join(one.summary for one in timelines),
        draw=partial(draw_timelines, timelines, title=title),
    )


def _first_gang(table: SweepTable, choice: Choice) -> int:
    """Return the first measured job of several ranks, or with servers, among what is admitted."""
    jobs = [
        repetition.job_id
        for line, _ in choice.admitted(table)
        if line.state is CellState.MEASURED and not line.configuration.is_one_machine
        for repetition in line.repetitions
        if repetition.step_time_s is not None
    ]
    if not jobs:
        raise NotFound("there is no series to draw: no job of several ranks was measured")
    return min(jobs)


def _history(session: Session, request: PlotRequest) -> Plot:
    from farm.cells.history import DEFAULT_SWEEPS, read_history
    from farm.charts.files.charts import draw_charts
    from farm.charts.history import history_figures
    from farm.store.measurements.history import cells_over_days, find_job

    job_id = request.job_id
    if job_id is None:
        cells = cells_over_days(session, request.sweep_id, limit=1)
        if not cells:
            raise NotFound("there is no history to draw: no cell was measured on several days")
        job_id = cells[0].job_id
    elif (of_sweep := find_job(session, job_id).sweep_id) != request.sweep_id:
        raise NotFound(f"job {job_id}: it is of sweep {of_sweep}, not of this one")
    history = read_history(session, job_id, limit=DEFAULT_SWEEPS)
    figures = history_figures(history)
    if not figures:
        raise NotFound(f"job {job_id}: its cell was not measured yet")
    return Plot(
        kind=PlotKind.HISTORY,
        name=f"history-job-{job_id}",
        title=shown(history.configuration.values),
        summary="; ".join(f"{one.title}: {one.summary}" for one in figures),
        draw=partial(draw_charts, figures, columns=1),
    )


def _prediction(
    session: Session, request: PlotRequest, *, show: Callable[[int, int], None] | None
) -> Plot:
    from farm.charts.files.charts import draw_charts
    from farm.charts.prediction import prediction_figures
    from farm.recommend.observations import load_sweep

    kinds = list(load_sweep(session, request.sweep_id).values())
    observations = kinds[0].observations if kinds else ()
    figures = list(prediction_figures(observations, show=show).values())
    summary = figures[0].summary
    if len(kinds) > 1:
        summary += f"; of the most measured of {len(kinds)} kinds of hardware"
    return Plot(
        kind=PlotKind.PREDICTION,
        name=PlotKind.PREDICTION.value,
        title=figures[0].title,
        summary=summary,
        draw=partial(draw_charts, figures, columns=2, row_height_in=3.6),
    )
