"""The page of one job, with its ranks and their samples, and that of its cell's history."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from farm.cells.history import read_history
from farm.charts.history import history_figures
from farm.charts.job.figures import CHART_KEYS, ROLE_CHART_KEYS
from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.keys.api_tokens import Scope
from farm.measuring.quantities import known_beside_step_time
from farm.store.sweeps.jobs import AttemptDetail, request_cancel_job, retry_job
from farm.store.sweeps.stories import Story, job_story
from web import parameters, received
from web.access.callers import caller
from web.access.scopes import costly, needs
from web.backend import backend, now, read_session, wake_after, write_session
from web.drawing.drawn import drawn
from web.drawing.plotly import page_with_charts
from web.job import story as stories
from web.job.attempts import ATTEMPT
from web.job.exchange import rank_exchanges, staleness_bars
from web.job.ranks import written
from web.job.shares import MEANINGS
from web.job.view import (
    Selection,
    ShownAttempt,
    comparison,
    gang_shares,
    may_change,
    shown_attempt,
    spec_of,
)
from web.live.page_cache import shared
from web.overview.progress import waiting_reason
from web.pages import logs
from web.pages.logs import ShownLogs

bp = Blueprint("job", __name__)

_LAST_SECOND = 2**31 - 1
_RANKS = parameters.text("ranks", "Which ranks the charts show, such as `0-3,8`.")
_FROM = parameters.whole("from_s", "The charts' first second after go.", low=0, high=_LAST_SECOND)
_TO = parameters.whole("to_s", "The charts' last second after go.", low=0, high=_LAST_SECOND)
_PARAMETERS = (ATTEMPT, _RANKS, _FROM, _TO)


@bp.get("/jobs/<job_id>")
@shared
def get_job(job_id: str) -> ResponseReturnValue:
    """Show one job. Query: `attempt`, the number of one; `ranks`, `from_s` and `to_s`."""
    number, instant, asked = received.row_id("job", job_id), now(), _asked()
    with read_session() as session:
        story = job_story(session, number)
        spec = spec_of(story)
        why = waiting_reason(session, story.job, backend().settings, now=instant)
        attempt = shown_attempt(session, backend().drawings, story, spec, asked)
        compared = comparison(session, story, spec)
        shown_logs = _logs(session, attempt)
    state = story.job.state
    details = _measured_of(story, attempt)
    return page_with_charts(
        "job.html",
        job=story.job,
        story=story,
        chapters=stories.told(story),
        spec=spec,
        measurement=story.measurement,
        quantities=known_beside_step_time(story.measurement),
        waits_because=why,
        attempt=attempt,
        logs=shown_logs,
        asked=asked,
        ranks_written=written(attempt.drawn) if attempt else "",
        shares=gang_shares(story),
        exchanges=rank_exchanges(attempt.rows, training_count=spec.training_agent_count)
        if attempt
        else [],
        staleness=staleness_bars(details),
        servers=details.get("servers") or (),
        share_meanings=MEANINGS,
        chart_keys=(*CHART_KEYS, *(ROLE_CHART_KEYS if spec.server_count else ())),
        compared=compared,
        is_over=state in FINAL_JOB_STATES,
        is_live=may_change(story, attempt, now=instant),
        may_retry=state in (JobState.FAILED, JobState.CANCELLED),
    )


@bp.get("/jobs/<job_id>/history")
@costly
def get_history(job_id: str) -> ResponseReturnValue:
    """Show what sweeps measured of the job's cell. Query: `before`, only sweeps of smaller ids."""
    args = received.query("before")
    number, before_id = received.row_id("job", job_id), received.optional_id(args, "before")
    with read_session() as session:
        found = read_history(session, number, before_id=before_id)
    return page_with_charts(
        "history.html",
        history=found,
        points=list(reversed(found.points)),
        figures=[drawn(figure) for figure in history_figures(found)],
        before_id=before_id,
    )


@bp.post("/jobs/<job_id>/cancel")
@needs(Scope.SUBMIT)
def post_cancel(job_id: str) -> ResponseReturnValue:
    """Cancel the job."""
    number = received.row_id("job", job_id)
    with write_session() as session:
        has_changed = request_cancel_job(session, number, now=now(), by=caller().token)
    flash("Cancelled." if has_changed else "There was nothing to cancel any more.")
    return wake_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


@bp.post("/jobs/<job_id>/retry")
@needs(Scope.SUBMIT)
def post_retry(job_id: str) -> ResponseReturnValue:
    """Run the job again."""
    number = received.row_id("job", job_id)
    with write_session() as session:
        retry_job(session, number, now=now(), by=caller().token)
    flash("Back in the queue.")
    return wake_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


def _measured_of(story: Story, attempt: ShownAttempt | None) -> Mapping[str, Any]:
    """Return the details of the measurement if it is of the attempt that is shown."""
    own = story.measurement
    if own is None or attempt is None or own.attempt_id != attempt.attempt.id:
        return {}
    return own.details or {}


def _logs(session: Session, attempt: ShownAttempt | None) -> ShownLogs | None:
    if attempt is None:
        return None
    ranks = tuple(attempt.rows)
    return logs.shown(session, AttemptDetail(attempt=attempt.attempt, ranks=ranks))


def _asked() -> Selection:
    """Read the query. A form sends its empty fields too, and they mean nothing."""
    received.query(*(parameter.name for parameter in _PARAMETERS))
    filled: MultiDict[str, str] = MultiDict({k: v for k, v in request.args.items() if v.strip()})
    given = parameters.read_from(filled, _PARAMETERS)
    return Selection(
        attempt=given[ATTEMPT], ranks=given[_RANKS], from_s=given[_FROM], to_s=given[_TO]
    )
