"""Jobs: list them, show one with its events or its cell's history, cancel and retry."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.cells.history import DEFAULT_SWEEPS, MOST_SWEEPS, read_history
from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.keys.api_tokens import Scope
from farm.store.sweeps.jobs import job_detail, list_jobs, request_cancel_job, retry_job
from web import etags, parameters, request_body
from web.access.authentication import caller
from web.access.scopes import needs
from web.api.schema import answers, bodies, shapes, sweep_answers
from web.api.schema.openapi import Body, described
from web.backend import now, read_session, wake_after, write_session
from web.overview.progress import why_job_waits
from web.parameters import WHOLE, PageParameters, RowId

bp = APIBlueprint("api_jobs", __name__, url_prefix="/api/v1", tag="Jobs")

_NOTHING = Body(bodies.Nothing, is_required=False)


class JobsParameters(PageParameters):
    """Which jobs are listed."""

    sweep: RowId | None = Field(None, description="Jobs of this sweep alone.")
    state: JobState | None = Field(None, description="Jobs in this state alone.")


class HistoryParameters(PageParameters):
    """Which page of a cell's history."""

    limit: Annotated[int, Field(ge=1, le=MOST_SWEEPS), WHOLE] = Field(
        DEFAULT_SWEEPS, description=f"The most sweeps of a page; {DEFAULT_SWEEPS} by default."
    )


@bp.get("/jobs")
@described(bp, answers.JobList, query=JobsParameters)
def get_jobs() -> ResponseReturnValue:
    """List jobs by ascending id."""
    query = parameters.read(JobsParameters)
    limit = query.limit
    with read_session() as session:
        found = list_jobs(
            session,
            sweep_id=query.sweep,
            state=query.state,
            after_id=query.cursor,
            limit=limit + 1,
        )
    return jsonify(shapes.listed([shapes.job(j) for j in found], page_size=limit))


@bp.get("/jobs/<job_id>")
@described(bp, answers.JobStory, is_cacheable=True)
def get_job(job_id: str) -> ResponseReturnValue:
    """Return one job: attempts, ranks, changes, measurement; `waits_because` while it waits."""
    parameters.query()
    number, instant = request_body.row_id("job", job_id), now()
    with read_session() as session:
        detail = job_detail(session, number)
        why = why_job_waits(session, detail.job, now=instant)
    response = jsonify(shapes.job_with_story(detail, waits_because=why))
    return etags.answer(response) if detail.job.state in FINAL_JOB_STATES else response


@bp.get("/jobs/<job_id>/history")
@described(bp, sweep_answers.HistoryOfCell, query=HistoryParameters)
def get_history(job_id: str) -> ResponseReturnValue:
    """Return each sweep's measurements of the job's cell, and the versions that changed.

    Versions of a script are one cell. A page has all of its `limit` sweeps.
    """
    query = parameters.read(HistoryParameters)
    number = request_body.row_id("job", job_id)
    with read_session() as session:
        found = read_history(session, number, limit=query.limit, before_id=query.cursor)
    return jsonify(shapes.cell_history(found))


@bp.post("/jobs/<job_id>/cancel")
@needs(Scope.SUBMIT)
@described(bp, answers.JobChanged, body=_NOTHING)
def post_cancel(job_id: str) -> ResponseReturnValue:
    """Cancel a job. `changed` is false if it had ended, or was being cancelled already."""
    request_body.posted(bodies.Nothing)
    number = request_body.row_id("job", job_id)
    with write_session() as session:
        has_changed = request_cancel_job(session, number, now=now(), by=caller().token)
    answer: answers.JobChanged = {"id": number, "changed": has_changed}
    return wake_after(jsonify(answer))


@bp.post("/jobs/<job_id>/retry")
@needs(Scope.SUBMIT)
@described(
    bp,
    answers.JobChanged,
    body=_NOTHING,
    refusals={HTTPStatus.CONFLICT: "It neither failed nor was cancelled."},
)
def post_retry(job_id: str) -> ResponseReturnValue:
    """Run a failed or cancelled job again."""
    request_body.posted(bodies.Nothing)
    number = request_body.row_id("job", job_id)
    with write_session() as session:
        retry_job(session, number, now=now(), by=caller().token)
    answer: answers.JobChanged = {"id": number, "changed": True}
    return wake_after(jsonify(answer))
