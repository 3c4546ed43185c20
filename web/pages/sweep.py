"""The page of one sweep: progress, tables of cells and jobs, figures and recommendations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from flask import (
    Blueprint,
    copy_current_request_context,
    flash,
    redirect,
    render_template,
    request,
    url_for,
)
from flask.typing import ResponseReturnValue
from markupsafe import Markup
from sqlalchemy.orm import Session

from farm.cells.choice import (
    CELL_METRICS,
    CellMetric,
    Choice,
    columns_of,
    in_order,
    query_names,
    read_choice,
)
from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.table import CellLine, CellState, SweepTable
from farm.charts.heat_map import heat_map
from farm.charts.sweep_figures import figures_of
from farm.configuration.axes import AXES, PROFILE_AXES
from farm.configuration.axis import AxisKind
from farm.configuration.scripts import workload_text
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import BUDGET, MACHINE_HOURS
from farm.gang.lifecycle import JobState, SweepState
from farm.keys.api_tokens import Scope
from farm.measuring.measurement import OK
from farm.measuring.quantities import SHOWN, Quantity, other_known_quantities
from farm.measuring.scaling import Baselines, efficiency
from farm.store.agents.agents import live_agent_count
from farm.store.dashboard import SweepJob, sweep_jobs
from farm.store.measurements.cell_rows import FailedJob, failed_jobs
from farm.store.notifications import list_deliveries
from farm.store.queue.waiting_reasons import group_reasons, missing_agents
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.budgets import spent_machine_s
from farm.store.sweeps.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps.sweeps import find_sweep, pause_sweep, resume_sweep, sweep_summary
from farm.store.tables import JobRow
from farm.text.display import short_fingerprint
from farm.text.plurals import counted
from farm.values.codec import from_json
from web import parameters, request_body
from web.access.authentication import caller
from web.access.scopes import needs
from web.advice.sweep_advice import Advice
from web.backend import (
    backend,
    now,
    read_session,
    sweep_reading,
    wake_after,
    write_session,
)
from web.drawing.downloads import can_draw
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn
from web.exports import can_bundle, forms
from web.live.page_cache import shared
from web.overview.progress import cached_waiting_reasons, sweep_remaining_s
from web.parameters import NUMBER, PageNumber, Parameters
from web.value_types import bounds

bp = Blueprint("sweep", __name__)

_CELLS_SHOWN = 50
_JOBS_SHOWN = 50
_JOBS_OPEN = 24  # more are a page of their own, since the cells say it shorter
_REASONS_SHOWN = 3
_MESSAGES_SHOWN = 20
_MANY_CELLS = 500
_PICTURES_LIFE_S = 10.0  # of pictures of so many cells, which each change would draw again
# Axes that have a column of their own; the others share one.
_WITH_COLUMN = frozenset(axis for axis in AXES if axis.is_required or axis in PROFILE_AXES)


class PagesParameters(Parameters):
    """Which page of the jobs, and which of the cells."""

    page: PageNumber = 1
    cells: PageNumber = 1


class BudgetParameters(Parameters):
    """A new budget, where one was typed."""

    budget_machine_hours: Annotated[float, bounds(MACHINE_HOURS), NUMBER] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumns:
    """Which columns tell anything, of both tables."""

    has_workloads: bool
    has_networks: bool
    has_further: bool
    has_targets: bool
    has_repetitions: bool
    metrics: tuple[CellMetric, ...]  # of cells
    quantities: tuple[Quantity, ...]  # of jobs

    @property
    def has_prices(self) -> bool:
        """Whether a cost is shown."""
        return any(metric.name == "cost" for metric in self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellShown:
    """What a cell's row shows. `why` its first failed job did; `also`: axes without a column.

    `values`: of the columns' metrics, written.
    """

    line: CellLine
    why: str | None
    also: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShown:
    """What the row of a job shows. `is_advised`: a firm recommendation rests on it.

    `why` it failed or waits; `measurement` None: nothing that counts. `values`: of the columns'
    quantities, written.
    """

    job: JobRow
    configuration: CellConfiguration
    why: str | None
    efficiency_ratio: float | None
    is_advised: bool
    measurement: MeasurementRow | None
    values: Sequence[str]


@bp.get("/sweeps/<sweep_id>")
@shared
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Show one sweep.

    Query: `page` of the jobs and `cells` of the cells, from 1; `sort` of the cells, with a - before
    it downwards; `show=failed` for those that failed; `metric`, `x` and `y` of the map, `along` of
    the charts, and `at_...` what other axes are held at.
    """
    args = parameters.query(*query_names(request.args))
    number, instant = request_body.row_id("sweep", sweep_id), now()
    pages = parameters.read_from(PagesParameters, args)
    with read_session() as session:
        summary = sweep_summary(session, number)
        sweep = find_sweep(session, str(number))
        agent_count = live_agent_count(
            session, now=instant, live_within_s=backend().settings.lease_s
        )
        left_s = sweep_remaining_s(session, summary, now=instant, agent_count=agent_count)
        table = sweep_reading(session, number).table
        choice = read_choice(args, table)
        is_listed = summary.job_count <= _JOBS_OPEN or "page" in choice.given
        jobs: list[SweepJob] = []
        if is_listed:
            offset = (pages.page - 1) * _JOBS_SHOWN
            jobs = sweep_jobs(session, number, offset=offset, limit=_JOBS_SHOWN)
        advice = backend().advice.of_sweep(session, number)
        lines = in_order(
            [line for line in table.lines if line.failed_job_ids or not choice.is_failed_only],
            choice,
        )
        cell_count = len(lines)
        first = (pages.cells - 1) * _CELLS_SHOWN
        lines = lines[first : first + _CELLS_SHOWN]
        firsts = [line.failed_job_ids[0] for line in lines if line.failed_job_ids]
        failed = failed_jobs(session, firsts)
        messages = list_deliveries(session, sweep_id=number, limit=_MESSAGES_SHOWN)
        spent_s = spent_machine_s(session, [number], now=instant)[number]
        reasons = (
            cached_waiting_reasons(session, now=instant) if summary.counts[JobState.WAITING] else {}
        )
    columns = _shown_columns(table, jobs)
    is_busy = summary.state is not SweepState.FINISHED
    return page_with_charts(
        "sweep.html",
        sweep=sweep,
        summary=summary,
        counts={state.value: count for state, count in summary.counts.items()},
        remaining_s=left_s,
        spent_machine_s=spent_s,
        reason_groups=group_reasons({i: r for i, r in reasons.items() if r.sweep_id == number})[
            :_REASONS_SHOWN
        ],
        missing_agents=missing_agents([summary], reasons).get(number),
        is_busy=is_busy,
        advice=advice,
        table=table,
        choice=choice,
        metrics=CELL_METRICS,
        series_job_id=table.first_gang_job_id,
        pictures=_pictures(number, table, choice),
        columns=columns,
        workload=_workload(jobs[0]) if jobs and not columns.has_workloads else None,
        cells=_cells_shown(lines, failed, table, columns),
        cell_count=cell_count,
        failed_count=table.failed_count,
        cells_page=pages.cells,
        cells_page_count=-(-cell_count // _CELLS_SHOWN),
        rows=_jobs_shown(jobs, advice or (), table.single, columns),
        has_flags=any(item.measurement and item.measurement.flags for item in jobs),
        is_listed=is_listed,
        page=pages.page,
        page_count=-(-summary.job_count // _JOBS_SHOWN),
        messages=[one.to_json() for one in messages],
        forms=forms(),
        can_bundle=can_bundle(),
        trains_epochs=any("epochs" in case for case in sweep.spec.get("case") or ()),
    )


@bp.post("/sweeps/<sweep_id>/cancel")
@needs(Scope.SUBMIT)
def post_cancel(sweep_id: str) -> ResponseReturnValue:
    """Cancel what the sweep has not finished."""

    def cancel(session: Session, number: int) -> str:
        sweep_summary(session, number)
        count = request_cancel_sweep(session, number, now=now(), by=caller().token)
        return f"{counted(count, 'job')} cancelled; what runs ends within seconds."

    return _changed(sweep_id, cancel)


@bp.post("/sweeps/<sweep_id>/retry")
@needs(Scope.SUBMIT)
def post_retry(sweep_id: str) -> ResponseReturnValue:
    """Run again what failed or was cancelled."""

    def retry(session: Session, number: int) -> str:
        sweep_summary(session, number)
        count = retry_failed(session, number, now=now(), by=caller().token)
        return f"{counted(count, 'job')} back in the queue."

    return _changed(sweep_id, retry)


@bp.post("/sweeps/<sweep_id>/pause")
@needs(Scope.SUBMIT)
def post_pause(sweep_id: str) -> ResponseReturnValue:
    """Start no further job of the sweep."""

    def pause(session: Session, number: int) -> str:
        pause_sweep(session, number)
        return "Paused: no further job is started; running jobs continue."

    return _changed(sweep_id, pause)


@bp.post("/sweeps/<sweep_id>/resume")
@needs(Scope.SUBMIT)
def post_resume(sweep_id: str) -> ResponseReturnValue:
    """Start jobs of a held sweep again, within a new budget where one was typed."""
    hours = parameters.read_from(BudgetParameters, request.form).budget_machine_hours
    budget_s = None if hours is None else MACHINE_HOURS.read(hours, BUDGET)

    def resume(session: Session, number: int) -> str:
        resume_sweep(session, number, budget_machine_s=budget_s, now=now())
        return "Resumed: its jobs are started again."

    return _changed(sweep_id, resume)


def _changed(sweep_id: str, change: Callable[[Session, int], str]) -> ResponseReturnValue:
    """Change a sweep in one transaction, and show it with a word on what was done."""
    number = request_body.row_id("sweep", sweep_id)
    with write_session() as session:
        message = change(session, number)
    flash(message)
    return wake_after(redirect(url_for(".get_sweep", sweep_id=number), HTTPStatus.SEE_OTHER))


def _shown_columns(table: SweepTable, jobs: Sequence[SweepJob]) -> ShownColumns:
    """Return the columns for a sweep's cells and these of its jobs."""
    values = table.values
    quantities = [other_known_quantities(item.measurement) for item in jobs]
    return ShownColumns(
        has_workloads=any(axis.name in values for axis in AXES if axis.kind is AxisKind.WORKLOAD),
        has_networks=any(
            not axis.is_left_out(axis.value_of(line.configuration))
            for line in table.lines
            for axis in PROFILE_AXES
        ),
        has_further=any(axis not in _WITH_COLUMN for axis in table.axes)
        or _hardware(table) != set(),
        has_targets=table.precision is not None,
        has_repetitions=any(item.job.repetition for item in jobs),
        metrics=tuple(columns_of(table.measured)),
        quantities=tuple(one for one in SHOWN if any(one in of_job for of_job in quantities)),
    )


def _hardware(table: SweepTable) -> set[str | None]:
    """Return the kinds of hardware that cells were measured on, if there are several."""
    kinds = {line.fingerprint for line in table.measured}
    return kinds if len(kinds) > 1 else set()


def _cells_shown(
    lines: Sequence[CellLine],
    failed: Mapping[int, FailedJob],
    table: SweepTable,
    columns: ShownColumns,
) -> list[CellShown]:
    """Return a row for each cell. `failed`: jobs by id, for their reasons."""
    rest = [axis for axis in table.axes if axis not in _WITH_COLUMN]
    hardware = _hardware(table)
    found = []
    for line in itertools.chain.from_iterable((line, *line.other_kinds) for line in lines):
        why = failed.get(line.failed_job_ids[0]) if line.failed_job_ids else None
        kind = (line.failure_kind or "failed").replace("_", " ")
        also = [axis.named(axis.value_of(line.configuration)) for axis in rest]
        if hardware and line.state is CellState.MEASURED:
            also.append(f"hardware {short_fingerprint(line.fingerprint or 'unknown')}")
        found.append(
            CellShown(
                line=line,
                why=f"{kind}: {why.reason or 'no reason'}" if why else None,
                also=", ".join(also),
                values=[metric.write(metric.read(line)) for metric in columns.metrics],
            )
        )
    return found


def _jobs_shown(
    jobs: Sequence[SweepJob], advice: Sequence[Advice], single: Baselines, columns: ShownColumns
) -> list[JobShown]:
    """Return a row for each job. `single`: what one machine makes of the work."""
    advised = {
        measurement_id
        for item in advice
        if item.answer.recommended is not None and item.answer.is_firm
        for measurement_id in item.answer.recommended.measurement_ids
    }
    return [_job_shown(item, advised, single, columns) for item in jobs]


def _job_shown(
    item: SweepJob, advised: set[int], single: Baselines, columns: ShownColumns
) -> JobShown:
    job, measurement = item.job, item.measurement
    configuration = configuration_of(job.spec)
    each = configuration["ranks_per_agent"]
    quantities = other_known_quantities(measurement)
    return JobShown(
        job=job,
        configuration=configuration,
        why=job.reason if job.state in (JobState.FAILED, JobState.WAITING) else None,
        efficiency_ratio=efficiency(measurement, single, ranks_per_agent=each)
        if measurement
        else None,
        is_advised=measurement is not None and measurement.id in advised,
        measurement=measurement if measurement and measurement.status == OK else None,
        values=[one.write(quantities.get(one)) for one in columns.quantities],
    )


def _workload(item: SweepJob) -> str:
    spec = from_json(JobSpec, item.job.spec)
    return (
        f"{workload_text(spec.model, spec.dataset)}, {spec.training_pass.value.replace('_', ' + ')}"
    )


def _pictures(sweep_id: int, table: SweepTable, choice: Choice) -> Markup:
    """Return the heat map and charts as HTML, kept for as long as the cells are unchanged.

    To draw some hundred fields and marks takes longer than all the rest of the page. Those of many
    cells may be some seconds old.
    """
    cache = backend().pictures
    shown = choice.address(sort=None, show=None, cells=None, page=None)
    key = (sweep_id, *sorted(shown.items()))

    def draw() -> tuple[str, object]:
        heat = heat_map(table, choice)
        figures = figures_of(table, choice)
        text = render_template(
            "_sweep_pictures.html",
            sweep_id=sweep_id,
            choice=choice,
            heat=drawn(heat) if heat else None,
            figures={name: drawn(figure) for name, figure in figures.items()},
            can_draw=can_draw(),
        )
        return text, table.token

    if len(table.lines) > _MANY_CELLS:
        renew = copy_current_request_context(draw)
        text, _ = cache.for_a_while(
            key,
            draw,
            keep_s=_PICTURES_LIFE_S,
            renew=renew,
            is_still_so=lambda it: it[1] is table.token,
        )
    else:
        text, _ = cache.get(
            key, lambda _: draw(), is_good=lambda made: made.value[1] is table.token
        )
    return Markup(text)  # noqa: S704 (drawn as Markup)
