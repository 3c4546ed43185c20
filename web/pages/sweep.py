"""The page of one sweep: how far it is, what it measured, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from farm.core.cells import SweepCell
from farm.core.codec import from_json
from farm.core.lifecycle import SweepState
from farm.core.scaling import efficiency
from farm.core.spec import JobSpec, NetworkProfile, TrainingPass
from farm.store.agents import live_agents
from farm.store.dashboard import SweepJob, sweep_jobs
from farm.store.jobs import request_cancel_sweep, retry_failed
from farm.store.repetitions import sweep_cells
from farm.store.sweeps import find_sweep, sweep_summary
from web import params
from web.advice import Findings
from web.backend import backend, now, read_session, ring_after, write_session
from web.progress import sweep_remaining_s

bp = Blueprint("sweep", __name__)

_ROWS_SHOWN = 200
_MAX_CELL_JOBS = 5000  # of a sweep, read to sum up its cells
_MOST_PAGES = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table of results. `is_advised`: a recommendation rests on it."""

    item: SweepJob
    spec: JobSpec
    efficiency_ratio: float | None
    is_advised: bool

    @property
    def network(self) -> NetworkProfile | None:
        """What was asked for; None is the untouched network."""
        return _asked_network(self.spec)


@dataclass(frozen=True, slots=True)
class CellRow:
    """A line of the table of cells."""

    item: SweepCell
    spec: JobSpec

    @property
    def network(self) -> NetworkProfile | None:
        """What was asked for; None is the untouched network."""
        return _asked_network(self.spec)


@bp.get("/sweeps/<sweep_id>")
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Show one sweep. Query: `page`, of the table of results, from 1."""
    number, instant = params.row_id("sweep", sweep_id), now()
    page = params.whole(params.query("page"), "page", high=_MOST_PAGES) or 1
    with read_session() as session:
        summary = sweep_summary(session, number)
        sweep = find_sweep(session, str(number))
        agents = live_agents(session, now=instant, live_within_s=backend().settings.lease_s)
        left_s = sweep_remaining_s(session, summary, now=instant, agent_count=len(agents))
        jobs = sweep_jobs(session, number, offset=(page - 1) * _ROWS_SHOWN, limit=_ROWS_SHOWN)
        findings = backend().findings.of_sweep(session, number)
        found = sweep_cells(session, number, max_jobs=_MAX_CELL_JOBS)
    rows = _rows(jobs, findings)
    cells = [CellRow(cell, from_json(JobSpec, cell.spec)) for cell in found.cells[:_ROWS_SHOWN]]
    specs = [row.spec for row in rows] + [cell.spec for cell in cells]
    return render_template(
        "sweep.html",
        sweep=sweep,
        summary=summary,
        counts={state.value: count for state, count in summary.counts.items()},
        remaining_s=left_s,
        is_busy=summary.state is not SweepState.FINISHED,
        advice=findings.advice,
        precision=found.precision,
        cells=cells,
        has_more_cells=not found.is_complete or len(found.cells) > _ROWS_SHOWN,
        machine_s=found.machine_s if found.is_complete else None,
        saving=found.saving,
        rows=rows,
        has_workloads=len({_workload(spec) for spec in specs}) > 1,
        has_networks=any(_asked_network(spec) is not None for spec in specs),
        has_flags=any(r.item.measurement and r.item.measurement.flags for r in rows),
        has_repetitions=any(r.spec.repetition for r in rows),
        page=page,
        page_count=-(-summary.job_count // _ROWS_SHOWN),
    )


@bp.post("/sweeps/<sweep_id>/cancel")
def post_cancel(sweep_id: str) -> ResponseReturnValue:
    """Cancel what the sweep has not finished."""
    number = params.row_id("sweep", sweep_id)
    with write_session() as session:
        sweep_summary(session, number)
        count = request_cancel_sweep(session, number, now=now())
    flash(f"{_jobs(count)} cancelled; what runs ends within seconds.")
    return ring_after(redirect(url_for(".get_sweep", sweep_id=number), HTTPStatus.SEE_OTHER))


@bp.post("/sweeps/<sweep_id>/retry")
def post_retry(sweep_id: str) -> ResponseReturnValue:
    """Run again what failed or was cancelled."""
    number = params.row_id("sweep", sweep_id)
    with write_session() as session:
        sweep_summary(session, number)
        count = retry_failed(session, number, now=now())
    flash(f"{_jobs(count)} back in the queue.")
    return ring_after(redirect(url_for(".get_sweep", sweep_id=number), HTTPStatus.SEE_OTHER))


def _workload(spec: JobSpec) -> tuple[str, str, TrainingPass]:
    return spec.model, spec.dataset, spec.training_pass


def _asked_network(spec: JobSpec) -> NetworkProfile | None:
    network = spec.network
    return None if network is None or network.is_untouched else network


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _rows(jobs: Sequence[SweepJob], findings: Findings) -> list[Row]:
    advised = {
        measurement_id
        for item in findings.advice
        if item.answer.recommended is not None
        for measurement_id in item.answer.recommended.measurement_ids
    }
    return [
        Row(
            item=item,
            spec=from_json(JobSpec, item.job.spec),
            efficiency_ratio=(
                efficiency(item.measurement, findings.single) if item.measurement else None
            ),
            is_advised=item.measurement is not None and item.measurement.id in advised,
        )
        for item in jobs
    ]
