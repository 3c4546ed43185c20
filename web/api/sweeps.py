"""Sweeps: preview, enqueue, list, show and steer them."""

from __future__ import annotations

from http import HTTPStatus

from apiflask import APIBlueprint
from flask import jsonify, url_for
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.cells.choice import read_choice
from farm.cells.reading import first_cells
from farm.charts.metric_lines import line_figures, no_lines
from farm.gang.lifecycle import SweepState
from farm.keys.api_tokens import Scope
from farm.notifications.addresses import check_reachable
from farm.recommend.sweeps.expectation import expected
from farm.store.agents.agents import live_agent_count
from farm.store.sweeps.budgets import spent_machine_s
from farm.store.sweeps.jobs import request_cancel_sweep, retry_failed
from farm.store.sweeps.sweeps import (
    list_sweeps,
    pause_sweep,
    resume_sweep,
    sweep_of_id,
    sweep_summary,
)
from farm.submission import SubmissionPlan, plan, submit, within_memory
from farm.values.codec import to_json
from web import etags, parameters, request_body
from web.access.authentication import caller
from web.access.scopes import costly, needs
from web.api.schema import answers, bodies, shapes, sweep_answers
from web.api.schema.openapi import Body, described
from web.backend import (
    backend,
    live_agents_now,
    now,
    read_session,
    sweep_reading,
    wake_after,
    write_session,
)
from web.exports import bundle_answer
from web.overview.progress import sweep_remaining_s
from web.parameters import PageParameters, Parameters, QueryText

bp = APIBlueprint("api_sweeps", __name__, url_prefix="/api/v1", tag="Sweeps")

_MAX_CELL_JOBS = 1000  # of a sweep, read to sum up its cells: what is answered quickly
_JOBS_SHOWN = 1000  # of a preview
_MOST_PREDICTED = 20_000  # jobs: a second's work
_NOTHING = Body(bodies.Nothing, is_required=False)
_SWEEP_FILE = Body(bodies.SweepFile, other_types={"application/toml": "The sweep file itself."})
_MALFORMED = {HTTPStatus.BAD_REQUEST: "The body is no JSON, or no TOML."}


class FigureParameters(Parameters):
    """What is drawn."""

    metric: QueryText | None = Field(None, description="What to draw: the step time by default.")
    along: QueryText | None = Field(
        None, description="Along which axis: the first that the sweep varies by default."
    )


@bp.post("/sweeps")
@needs(Scope.SUBMIT)
@described(
    bp,
    sweep_answers.Submitted,
    status=HTTPStatus.CREATED,
    meaning="Its jobs wait.",
    body=_SWEEP_FILE,
    refusals=_MALFORMED,
)
def post_sweep() -> ResponseReturnValue:
    """Enqueue a sweep: its file as JSON, or unchanged as `application/toml`.

    An invalid sweep is refused with the `field` at fault, and nothing is written.
    """
    planned = _posted()
    check_reachable(planned.sweep.notify, backend().settings.notify_allow)
    with write_session() as session:
        submitted = submit(session, planned, now=now())
    response = jsonify(submitted.to_json())
    response.status_code = HTTPStatus.CREATED
    response.headers["Location"] = url_for(".get_sweep", sweep_id=submitted.sweep_id)
    return wake_after(response)


@bp.post("/sweeps/preview")
@needs(Scope.SUBMIT)
@costly
@described(bp, answers.Preview, body=_SWEEP_FILE, refusals=_MALFORMED)
def post_preview() -> ResponseReturnValue:
    """Preview a sweep: its jobs, what cannot run, the expected time and cost. Writes nothing.

    `expected` has the time of its jobs one after another, with the ends of the 90 % intervals, and
    the cost at the prices of this server. While the first prediction is being prepared, `unknown`
    in `expected` says so: ask again.
    """
    planned = _posted()
    jobs = planned.expansion.jobs
    found = None
    if len(jobs) <= _MOST_PREDICTED:
        with read_session() as session:
            found = expected(
                session,
                jobs,
                prices=backend().prices,
                cache=backend().recommender_cache,
                may_wait=False,
            )
    return jsonify(
        **planned.to_json(most_jobs=_JOBS_SHOWN),
        expected=to_json(found),
        expected_unknown_because=(
            None if found else f"it has more than {_MOST_PREDICTED} jobs to begin with"
        ),
    )


@bp.get("/sweeps")
@described(bp, sweep_answers.SweepList, query=PageParameters)
def get_sweeps() -> ResponseReturnValue:
    """List sweeps with their jobs counted by state, newest first."""
    page = parameters.read(PageParameters)
    with read_session() as session:
        found = list_sweeps(session, before_id=page.cursor, limit=page.limit + 1)
    return jsonify(shapes.listed([shapes.sweep(s) for s in found], page_size=page.limit))


@bp.get("/sweeps/<sweep_id>")
@described(bp, sweep_answers.SweepDetail, is_cacheable=True)
def get_sweep(sweep_id: str) -> ResponseReturnValue:
    """Return one sweep as submitted, its progress, what was left out, and its cells.

    `remaining_s` is null until a job of it has finished, and if a job is wider than the farm. A
    sweep of more than 1,000 jobs returns only its first `cells`, and `has_more_cells` is true.
    `recommended` compares all measurements of each workload by the farm, including other sweeps,
    and says how many of them are of this sweep; null: not ready yet.
    """
    parameters.query()
    number, instant = request_body.row_id("sweep", sweep_id), now()
    with read_session() as session:
        summary = sweep_summary(session, number)
        row = sweep_of_id(session, number)
        agent_count = live_agent_count(
            session, now=instant, live_within_s=backend().settings.lease_s
        )
        left_s = sweep_remaining_s(session, summary, now=instant, agent_count=agent_count)
        spent_s = spent_machine_s(session, [number], now=instant)[number]
        found = first_cells(session, sweep_reading(session, number), max_jobs=_MAX_CELL_JOBS)
        advice = backend().advice.of_sweep(session, number)
    response = jsonify(
        {
            **shapes.sweep(summary),
            "remaining_s": left_s,
            "spent_machine_s": spent_s,
            "spec": row.spec,
            "skipped": row.skipped,
            "recommended": None if advice is None else [item.found.to_json() for item in advice],
            **found.to_json(),
        }
    )
    return etags.answer(response) if summary.state is SweepState.FINISHED else response


@bp.get("/sweeps/<sweep_id>/bundle")
@costly
@described(
    bp,
    None,
    meaning="A ZIP file of the folder that `farm export --bundle` writes.",
    content_type=request_body.ZIP,
    refusals={
        HTTPStatus.NOT_FOUND: "There is no such sweep, or no matplotlib here.",
        HTTPStatus.TOO_MANY_REQUESTS: "Another bundle is being worked on: ask again.",
    },
)
def get_bundle(sweep_id: str) -> ResponseReturnValue:
    """Return a sweep as one file: its tables, figures and report, for readers and other farms.

    It takes seconds to write, for a large sweep minutes.
    """
    number = request_body.row_id("sweep", sweep_id)
    with read_session() as session:
        name = sweep_of_id(session, number).name
    return bundle_answer(number, name)


@bp.get("/sweeps/<sweep_id>/figure")
@described(bp, sweep_answers.SweepFigure, query=FigureParameters)
def get_figure(sweep_id: str) -> ResponseReturnValue:
    """Return the lines of a metric along an axis of a sweep, as its page draws them.

    If there are more lines than can be distinguished, those with most cells are returned.
    """
    query = parameters.read(FigureParameters)
    number = request_body.row_id("sweep", sweep_id)
    with read_session() as session:
        table = sweep_reading(session, number).table
    choice = read_choice(query.model_dump(exclude_none=True), table)
    [figure] = line_figures(table, choice, [choice.metric])
    answer: sweep_answers.SweepFigure = {
        "figure": None if figure is None else shapes.figure(figure),
        "reason": None if figure is not None else no_lines(choice),
    }
    return jsonify(to_json(answer))


@bp.post("/sweeps/<sweep_id>/cancel")
@needs(Scope.SUBMIT)
@described(bp, sweep_answers.SweepCancelled, body=_NOTHING)
def post_cancel(sweep_id: str) -> ResponseReturnValue:
    """Cancel the unfinished jobs of the sweep. Running ones end when their agents hear of it."""
    request_body.posted(bodies.Nothing)
    number = request_body.row_id("sweep", sweep_id)
    with write_session() as session:
        sweep_summary(session, number)
        count = request_cancel_sweep(session, number, now=now(), by=caller().token)
    answer: sweep_answers.SweepCancelled = {"id": number, "cancelled_count": count}
    return wake_after(jsonify(answer))


@bp.post("/sweeps/<sweep_id>/retry")
@needs(Scope.SUBMIT)
@described(bp, sweep_answers.SweepRetried, body=_NOTHING)
def post_retry(sweep_id: str) -> ResponseReturnValue:
    """Run the failed and cancelled jobs of the sweep again."""
    request_body.posted(bodies.Nothing)
    number = request_body.row_id("sweep", sweep_id)
    with write_session() as session:
        sweep_summary(session, number)
        count = retry_failed(session, number, now=now(), by=caller().token)
    answer: sweep_answers.SweepRetried = {"id": number, "retried_count": count}
    return wake_after(jsonify(answer))


@bp.post("/sweeps/<sweep_id>/pause")
@needs(Scope.SUBMIT)
@described(bp, sweep_answers.SweepPaused, body=_NOTHING)
def post_pause(sweep_id: str) -> ResponseReturnValue:
    """Start no further jobs of the sweep. Running ones go on."""
    request_body.posted(bodies.Nothing)
    number = request_body.row_id("sweep", sweep_id)
    with write_session() as session:
        has_changed = pause_sweep(session, number)
    return _held_or_resumed(number, is_paused=True, has_changed=has_changed)


@bp.post("/sweeps/<sweep_id>/resume")
@needs(Scope.SUBMIT)
@described(bp, sweep_answers.SweepPaused, body=Body(bodies.NewBudget, is_required=False))
def post_resume(sweep_id: str) -> ResponseReturnValue:
    """Resume a sweep that is paused, or whose budget is used up.

    In the second case the new budget `budget_machine_hours` is needed, which must exceed what is
    spent.
    """
    budget_s = request_body.posted(bodies.NewBudget).budget_machine_s
    number = request_body.row_id("sweep", sweep_id)
    with write_session() as session:
        has_changed = resume_sweep(session, number, budget_machine_s=budget_s, now=now())
    return _held_or_resumed(number, is_paused=False, has_changed=has_changed)


def _posted() -> SubmissionPlan:
    """Plan the posted sweep, within the memory of the agents that live. Raises InvalidSpec."""
    planned = plan(request_body.posted_sweep())
    with read_session() as session:
        return within_memory(planned, live_agents_now(session))


def _held_or_resumed(number: int, *, is_paused: bool, has_changed: bool) -> ResponseReturnValue:
    answer: sweep_answers.SweepPaused = {
        "id": number,
        "is_paused": is_paused,
        "changed": has_changed,
    }
    return wake_after(jsonify(answer))
