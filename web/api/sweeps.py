"""Sweeps: enqueue, list, look at one, cancel."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, jsonify, url_for
from flask.typing import ResponseReturnValue

from farm.store.agents import live_agents
from farm.store.jobs import request_cancel_sweep
from farm.store.repetitions import sweep_cells
from farm.store.sweeps import find_sweep, list_sweeps, sweep_summary
from farm.submission import plan, submit
from web import params
from web.api import shapes
from web.backend import backend, now, read_session, ring_after, write_session
from web.progress import sweep_remaining_s

bp = Blueprint("api_sweeps", __name__, url_prefix="/api/v1")

_MAX_CELL_JOBS = 5000  # of a sweep, read to sum up its cells


@bp.post("/sweeps")
def post_sweep() -> ResponseReturnValue:
    """Enqueue a sweep: the sweep file as JSON, or itself as `application/toml`.

    Errors: 400 it does not parse; 415 another content type; 422 it cannot be accepted, with the
    `field` at fault, and nothing was written.
    """
    planned = plan(params.posted_sweep())
    with write_session() as session:
        submitted = submit(session, planned, now=now())
    response = jsonify(
        id=submitted.sweep_id,
        job_count=submitted.job_count,
        max_job_count=planned.expansion.max_job_count,
        skipped=list(submitted.skipped),
    )
    response.status_code = HTTPStatus.CREATED
    response.headers["Location"] = url_for(".get_sweep", sweep_id=submitted.sweep_id)
    return ring_after(response)


@bp.get("/sweeps")
def get_sweeps() -> ResponseReturnValue:
    """List sweeps with their jobs counted by state, newest first. Query: `limit`, `cursor`."""
    args = params.query("limit", "cursor")
    limit, cursor = params.page_size(args), params.cursor(args)
    with read_session() as session:
        found = list_sweeps(session, before_id=cursor, limit=limit + 1)
    return jsonify(shapes.listed([shapes.sweep(s) for s in found], page_size=limit))


@bp.get("/sweeps/<sweep_id>")
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Return one sweep as submitted, how far it is, what was left out, and its cells.

    `remaining_s` is null as long as no job of it has finished, or where a job is wider than the
    farm. Of a sweep of many thousand jobs `cells` are only the first: `has_more_cells`.
    """
    number, instant = params.row_id("sweep", sweep_id), now()
    with read_session() as session:
        summary = sweep_summary(session, number)
        row = find_sweep(session, str(number))
        agents = live_agents(session, now=instant, live_within_s=backend().settings.lease_s)
        left_s = sweep_remaining_s(session, summary, now=instant, agent_count=len(agents))
        found = sweep_cells(session, number, max_jobs=_MAX_CELL_JOBS)
    return jsonify(
        {
            **shapes.sweep(summary),
            "remaining_s": left_s,
            "spec": row.spec,
            "skipped": row.skipped,
            **found.to_json(),
        }
    )


@bp.post("/sweeps/<sweep_id>/cancel")
def post_cancel(sweep_id: str) -> ResponseReturnValue:
    """Cancel what the sweep has not finished. Running jobs end as soon as their agents hear it."""
    params.posted_fields()
    number = params.row_id("sweep", sweep_id)
    with write_session() as session:
        sweep_summary(session, number)
        count = request_cancel_sweep(session, number, now=now())
    return ring_after(jsonify(id=number, cancelled_count=count))
