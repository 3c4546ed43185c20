"""The page of one sweep: progress, measurements and recommendations."""

from __future__ import annotations

from collections.abc import Callable
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
from pydantic import Field
from sqlalchemy.orm import Session

from farm.cells.choice import CELL_METRICS, Choice, in_order, query_names, read_choice
from farm.cells.table import SweepTable
from farm.charts.heat_map import heat_map
from farm.charts.sweep_figures import figures_of
from farm.configuration.scripts import workload_text
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import BUDGET, MACHINE_HOURS
from farm.gang.lifecycle import JobState, SweepState
from farm.keys.api_tokens import Scope
from farm.store.agents.agents import live_agent_count
from farm.store.dashboard import SweepJob, sweep_jobs
from farm.store.measurements.cell_rows import failed_jobs
from farm.store.notifications import list_deliveries
from farm.store.queue.waiting_reasons import group_reasons, missing_agents
from farm.store.sweeps.budgets import spent_machine_s
from farm.store.sweeps.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps.sweeps import find_sweep, pause_sweep, resume_sweep, sweep_summary
from farm.text.nouns import counted
from farm.values.codec import from_json
from web import parameters, received
from web.access.callers import caller
from web.access.scopes import needs
from web.backend import (
    backend,
    now,
    read_session,
    sweep_reading,
    wake_after,
    write_session,
)
from web.drawing.drawn import drawn
from web.drawing.paper import can_draw
from web.drawing.plotly import page_with_charts
from web.exports import can_bundle, forms
from web.live.page_cache import shared
from web.overview.progress import cached_waiting_reasons, sweep_remaining_s
from web.pages.sweep_tables import cells_shown, columns_of, jobs_shown
from web.parameters import NUMBER, PageNumber, Parameters

bp = Blueprint("sweep", __name__)

_CELLS_SHOWN = 50
_JOBS_SHOWN = 50
_JOBS_OPEN = 24  # more are a page of their own, since the cells say it shorter
_REASONS_SHOWN = 3
_MESSAGES_SHOWN = 20
_MANY_CELLS = 500
_PICTURES_LIFE_S = 10.0  # of pictures of so many cells, which each change would draw again


class PagesParameters(Parameters):
    """Which page of the jobs, and which of the cells."""

    page: PageNumber = 1
    cells: PageNumber = 1


class BudgetParameters(Parameters):
    """A new budget, where one was typed."""

    budget_machine_hours: (
        Annotated[float, Field(gt=MACHINE_HOURS.low, le=MACHINE_HOURS.high), NUMBER] | None
    ) = None


@bp.get("/sweeps/<sweep_id>")
@shared
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Show one sweep.

    Query: `page` of the jobs and `cells` of the cells, from 1; `sort` of the cells, with a - before
    it downwards; `show=failed` for those that failed; `metric`, `x` and `y` of the map, `along` of
    the charts, and `at_...` what other axes are held at.
    """
    args = parameters.query(*query_names(request.args))
    number, instant = received.row_id("sweep", sweep_id), now()
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
    columns = columns_of(table, jobs)
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
        cells=cells_shown(lines, failed, table, columns),
        cell_count=cell_count,
        failed_count=table.failed_count,
        cells_page=pages.cells,
        cells_page_count=-(-cell_count // _CELLS_SHOWN),
        rows=jobs_shown(jobs, advice or (), table.single, columns),
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
        return "Paused: no further job is started; what runs goes on."

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
    number = received.row_id("sweep", sweep_id)
    with write_session() as session:
        said = change(session, number)
    flash(said)
    return wake_after(redirect(url_for(".get_sweep", sweep_id=number), HTTPStatus.SEE_OTHER))


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
