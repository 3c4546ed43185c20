"""The page of one sweep: how far it is, what it measured, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from farm.core.codec import from_json
from farm.core.lifecycle import SweepState
from farm.core.scaling import efficiency
from farm.core.spec import JobSpec, NetworkProfile
from farm.store.agents import live_agents
from farm.store.dashboard import SweepJob, sweep_jobs
from farm.store.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps import find_sweep, sweep_summary
from web import params
from web.advice import Findings
from web.backend import backend, now, read_session, ring_after, write_session
from web.progress import sweep_remaining_s

bp = Blueprint("sweep", __name__)

_ROWS_SHOWN = 200
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
        network = self.spec.network
        return None if network is None or network.is_untouched else network


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
    rows = _rows(jobs, findings)
    return render_template(
        "sweep.html",
        sweep=sweep,
        summary=summary,
        counts={state.value: count for state, count in summary.counts.items()},
        remaining_s=left_s,
        is_busy=summary.state is not SweepState.FINISHED,
        advice=findings.advice,
        rows=rows,
        has_workloads=len({(r.spec.model, r.spec.dataset, r.spec.training_pass) for r in rows}) > 1,
        has_networks=any(r.network is not None for r in rows),
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
