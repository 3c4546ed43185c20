"""The page of one sweep: how far it is, what it measured, and what follows from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm.core.api_tokens import Scope
from farm.core.codec import from_json
from farm.core.lifecycle import SweepState
from farm.core.scaling import Baselines, efficiency
from farm.core.spec import JobSpec, NetworkProfile
from farm.figures.sweep_choice import METRICS, QUERY, Choice, in_order, read_choice
from farm.figures.sweep_table import CellLine, SweepTable
from farm.store.agents import live_agent_count
from farm.store.cell_rows import failed_jobs
from farm.store.dashboard import SweepJob, sweep_jobs
from farm.store.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps import find_sweep, set_paused, sweep_summary
from web import params
from web.access.callers import caller
from web.access.scopes import needs
from web.advice.kept_advice import Advice
from web.backend import backend, now, read_session, ring_after, sweep_reading, write_session
from web.drawing.plotly import page_with_charts
from web.farm.progress import sweep_remaining_s
from web.live.shared_looks import shared
from web.sweep.exports import forms
from web.sweep.pictures import pictures_of

bp = Blueprint("sweep", __name__)

_CELLS_SHOWN = 50
_JOBS_SHOWN = 50
_JOBS_OPEN = 24  # more are a page of their own, since the cells say it shorter
_MOST_PAGES = 1_000_000
# Axes that have a column of their own; the others share one.
_WITH_COLUMN = frozenset(
    {
        *("model", "dataset", "strategy", "world_size", "global_batch_size"),
        *("one_way_delay_ms", "jitter_ms", "packet_loss_percent", "bandwidth_mbit_per_s"),
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table of jobs. `is_advised`: a recommendation rests on it."""

    item: SweepJob
    spec: JobSpec
    efficiency_ratio: float | None
    is_advised: bool

    @property
    def network(self) -> NetworkProfile | None:
        """What was asked for; None is the untouched network."""
        network = self.spec.network
        return None if network is None or network.is_untouched else network


@dataclass(frozen=True, slots=True)
class CellRow:
    """A line of the table of cells. `why`: the reason of its first failed job, `also`: the rest."""

    line: CellLine
    why: str | None
    also: str


@bp.get("/sweeps/<sweep_id>")
@shared
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Show one sweep.

    Query: `page` of the jobs and `cells` of the cells, from 1; `sort` of the cells, with a - before
    it downwards; `show=failed` for those that failed; `metric`, `x` and `y` of the map, `along` of
    the charts, and `at_...` what other axes are held at.
    """
    args = params.query(*QUERY)
    number, instant = params.row_id("sweep", sweep_id), now()
    page = params.whole(args, "page", high=_MOST_PAGES) or 1
    cells_page = params.whole(args, "cells", high=_MOST_PAGES) or 1
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
        jobs = _jobs_shown(session, number, page=page) if is_listed else []
        advice = backend().advice.of_sweep(session, number)
        lines = _chosen(table.lines, choice)
        first = (cells_page - 1) * _CELLS_SHOWN
        cells = _cell_rows(session, lines[first : first + _CELLS_SHOWN], table)
    is_busy = summary.state is not SweepState.FINISHED
    return page_with_charts(
        "sweep.html",
        sweep=sweep,
        summary=summary,
        counts={state.value: count for state, count in summary.counts.items()},
        remaining_s=left_s,
        is_busy=is_busy,
        advice=advice,
        table=table,
        choice=choice,
        metrics=METRICS,
        series_job_id=table.first_gang_job_id,
        pictures=pictures_of(backend().pictures, number, table, choice, is_busy=is_busy),
        cells=cells,
        cell_count=len(lines),
        failed_count=table.failed_count,
        cells_page=cells_page,
        cells_page_count=-(-len(lines) // _CELLS_SHOWN),
        rows=_rows(jobs, advice or (), table.single),
        has_flags=any(item.measurement and item.measurement.flags for item in jobs),
        has_repetitions=any(item.job.repetition for item in jobs),
        is_listed=is_listed,
        page=page,
        page_count=-(-summary.job_count // _JOBS_SHOWN),
        forms=forms(),
        trains_epochs=any("epochs" in case for case in sweep.spec.get("case") or ()),
        has_prices=any(line.cost_usd is not None for line in table.lines),
        **_columns(table),
    )


@bp.post("/sweeps/<sweep_id>/cancel")
@needs(Scope.SUBMIT)
def post_cancel(sweep_id: str) -> ResponseReturnValue:
    """Cancel what the sweep has not finished."""

    def cancel(session: Session, number: int) -> str:
        sweep_summary(session, number)
        count = request_cancel_sweep(session, number, now=now(), by=caller().token)
        return f"{_jobs(count)} cancelled; what runs ends within seconds."

    return _changed(sweep_id, cancel)


@bp.post("/sweeps/<sweep_id>/retry")
@needs(Scope.SUBMIT)
def post_retry(sweep_id: str) -> ResponseReturnValue:
    """Run again what failed or was cancelled."""

    def retry(session: Session, number: int) -> str:
        sweep_summary(session, number)
        count = retry_failed(session, number, now=now(), by=caller().token)
        return f"{_jobs(count)} back in the queue."

    return _changed(sweep_id, retry)


@bp.post("/sweeps/<sweep_id>/pause")
@needs(Scope.SUBMIT)
def post_pause(sweep_id: str) -> ResponseReturnValue:
    """Start no further job of the sweep."""

    def pause(session: Session, number: int) -> str:
        set_paused(session, number, is_paused=True)
        return "Paused: no further job is started; what runs goes on."

    return _changed(sweep_id, pause)


@bp.post("/sweeps/<sweep_id>/resume")
@needs(Scope.SUBMIT)
def post_resume(sweep_id: str) -> ResponseReturnValue:
    """Start jobs of a paused sweep again."""

    def resume(session: Session, number: int) -> str:
        set_paused(session, number, is_paused=False)
        return "Resumed: its jobs are started again."

    return _changed(sweep_id, resume)


def _changed(sweep_id: str, change: Callable[[Session, int], str]) -> ResponseReturnValue:
    """Change a sweep in one transaction, and show it with a word on what was done."""
    number = params.row_id("sweep", sweep_id)
    with write_session() as session:
        said = change(session, number)
    flash(said)
    return ring_after(redirect(url_for(".get_sweep", sweep_id=number), HTTPStatus.SEE_OTHER))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _jobs_shown(session: Session, sweep_id: int, *, page: int) -> list[SweepJob]:
    return sweep_jobs(session, sweep_id, offset=(page - 1) * _JOBS_SHOWN, limit=_JOBS_SHOWN)


def _chosen(lines: Sequence[CellLine], choice: Choice) -> Sequence[CellLine]:
    if choice.is_failed_only:
        lines = [line for line in lines if line.failed_job_ids]
    return in_order(lines, choice)


def _cell_rows(session: Session, lines: Sequence[CellLine], table: SweepTable) -> list[CellRow]:
    firsts = [line.failed_job_ids[0] for line in lines if line.failed_job_ids]
    failed = failed_jobs(session, firsts)
    rest = [axis for axis in table.axes if axis.name not in _WITH_COLUMN]
    rows = []
    for line in lines:
        why = failed.get(line.failed_job_ids[0]) if line.failed_job_ids else None
        kind = (line.failure_kind or "failed").replace("_", " ")
        also = ", ".join(axis.named(axis.read(line.configuration)) for axis in rest)
        rows.append(CellRow(line, f"{kind}: {why.reason or 'no reason'}" if why else None, also))
    return rows


def _columns(table: SweepTable) -> Mapping[str, bool]:
    """Say which columns tell anything, of both tables."""
    values = table.values
    networks = (line.configuration.network for line in table.lines)
    return {
        "has_workloads": any(name in values for name in ("model", "dataset", "pass")),
        "has_networks": any(network is not None for network in networks),
        "has_further": any(axis.name not in _WITH_COLUMN for axis in table.axes),
    }


def _rows(jobs: Sequence[SweepJob], advice: Sequence[Advice], single: Baselines) -> list[Row]:
    advised = {
        measurement_id
        for item in advice
        if item.answer.recommended is not None
        for measurement_id in item.answer.recommended.measurement_ids
    }
    return [
        Row(
            item=item,
            spec=from_json(JobSpec, item.job.spec),
            efficiency_ratio=efficiency(item.measurement, single) if item.measurement else None,
            is_advised=item.measurement is not None and item.measurement.id in advised,
        )
        for item in jobs
    ]
