"""Jobs: list, look at one with its story, cancel, ask again."""

from __future__ import annotations

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from farm.core.lifecycle import JobState
from farm.store.jobs import job_detail, list_jobs, request_cancel_job, retry_job
from web import params
from web.api import shapes
from web.backend import backend, now, read_session, ring_after, write_session
from web.progress import waiting_reason

bp = Blueprint("api_jobs", __name__, url_prefix="/api/v1")


@bp.get("/jobs")
def get_jobs() -> ResponseReturnValue:
    """List jobs by ascending id. Query: `sweep` (an id), `state`, `limit`, `cursor`."""
    args = params.query("sweep", "state", "limit", "cursor")
    sweep_id, state = params.optional_id(args, "sweep"), params.choice(args, "state", JobState)
    limit, cursor = params.page_size(args), params.cursor(args)
    with read_session() as session:
        found = list_jobs(session, sweep_id=sweep_id, state=state, after_id=cursor, limit=limit + 1)
    return jsonify(shapes.listed([shapes.job(j) for j in found], page_size=limit))


@bp.get("/jobs/<job_id>")
def get_job(job_id: str) -> ResponseReturnValue:
    """Return one job with its story; `waits_because` is set while it waits."""
    number, instant = params.row_id("job", job_id), now()
    with read_session() as session:
        detail = job_detail(session, number)
        why = waiting_reason(session, detail.job, backend().settings, now=instant)
    return jsonify({**shapes.job_with_story(detail), "waits_because": why})


@bp.post("/jobs/<job_id>/cancel")
def post_cancel(job_id: str) -> ResponseReturnValue:
    """Cancel a job. `changed` is false where it was over, or was being cancelled already."""
    params.posted_fields()
    number = params.row_id("job", job_id)
    with write_session() as session:
        has_changed = request_cancel_job(session, number, now=now())
    return ring_after(jsonify(id=number, changed=has_changed))


@bp.post("/jobs/<job_id>/retry")
def post_retry(job_id: str) -> ResponseReturnValue:
    """Run a failed or cancelled job again. Errors: 409 it is neither."""
    params.posted_fields()
    number = params.row_id("job", job_id)
    with write_session() as session:
        retry_job(session, number, now=now())
    return ring_after(jsonify(id=number, changed=True))
