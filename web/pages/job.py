"""The page of one job with its events in plain words, its cell's history, its trainers' logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

import sqlalchemy as sa
from flask import Blueprint, Response, flash, redirect, url_for
from flask.typing import ResponseReturnValue
from pydantic import Field
from sqlalchemy.orm import Session

from farm.cells.history import read_history
from farm.charts.history import history_figures
from farm.charts.job.figures import CHART_KEYS, ROLE_CHART_KEYS
from farm.errors import NotFound
from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    FINAL_JOB_STATES,
    UNSUCCESSFUL_JOB_STATES,
)
from farm.keys.api_tokens import Scope
from farm.measuring.quantities import other_known_quantities
from farm.messages.trainer_lines import Failure
from farm.store.engine import reading
from farm.store.reports.logs import LogEnd, LogRange, log_ends, log_stretch
from farm.store.sweeps.jobs import JobHistory, job_detail, job_story, request_cancel_job, retry_job
from farm.store.tables import AttemptRow, JobEvent, RankRow
from farm.text.log_text import last_lines, readable
from farm.values.codec import from_json
from web import parameters, request_body
from web.access.authentication import caller
from web.access.scopes import costly, needs
from web.backend import backend, now, read_session, wake_after, write_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn
from web.job.page_data import (
    Selection,
    ShownAttempt,
    comparison,
    gang_shares,
    may_change,
    shown_attempt,
    spec_of,
)
from web.job.ranks import written
from web.job.step_profile import MEANINGS, rank_exchanges, staleness_bars
from web.live.page_cache import shared
from web.overview.progress import why_job_waits
from web.parameters import WHOLE, AttemptParameters, Parameters, QueryText, RankParameters, RowId

bp = Blueprint("job", __name__)

_LAST_SECOND = 2**31 - 1
_LINES_SHOWN = 200
_CHARACTERS_SHOWN = 16_000
# Of the others there is only a link: 64 of them live would be a page of a megabyte.
_RANKS_SHOWN = 8
_Second = Annotated[int, Field(ge=0, le=_LAST_SECOND), WHOLE]
# What an event means, for readers who do not know the states.
_MEANINGS = {
    "job: waiting": "back in the queue",
    "job: leased": "a gang was leased",
    "job: running": "every rank has done its first step",
    "job: cancel requested": "its cancellation was requested",
    "job: succeeded": "the job is measured",
    "job: failed": "the job failed",
    "job: cancelled": "the job was cancelled",
    "attempt: measuring": "every rank is prepared; they time the untouched network",
    "attempt: shaping": "the requested network is applied and verified",
    "attempt: starting": "training starts: the trainers connect",
    "attempt: succeeded": "every rank is done",
    "attempt: failed": "the configuration failed, which is a result",
    "attempt: lost": "a machine failed",
    "attempt: void": "it did not run under the conditions it claims",
    "attempt: cancelled": "the gang was let go",
}
_QUEUED = "job: waiting"
# These are of the job, and not of the attempt that they name.
_OF_JOB = frozenset(
    {"job: waiting", "job: succeeded", "job: failed", "job: cancelled"},
)
_BAD = frozenset({"job: failed", "attempt: failed", "attempt: lost", "attempt: void"})
_GOOD = frozenset({"job: succeeded", "attempt: succeeded"})


class JobParameters(AttemptParameters):
    """What the charts show: ranks such as `0-3,8`, and seconds after go."""

    ranks: QueryText | None = None
    from_s: _Second | None = None
    to_s: _Second | None = None


class CellHistoryParameters(Parameters):
    """Only sweeps of smaller ids than `before`."""

    before: RowId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLog:
    """The last lines of a rank's log. `character_count` None: no log came, only its end."""

    rank: int
    agent_id: str
    failure: Failure | None
    lines: str
    is_whole: bool
    character_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLogs:
    """What `_logs.html` shows of an attempt. `others`: ranks of which it has only a link."""

    job_id: int
    attempt: int
    logs: Sequence[ShownLog]
    others: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened. `after_s`: how long after what was before it in the attempt."""

    at: dt.datetime
    event: str
    meaning: str
    reason: str | None
    tone: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSection:
    """`is_open`: its fold is, unless the reader closes it. `lasted_s` None: it goes on."""

    attempt: AttemptRow
    entries: list[Entry] = field(default_factory=list)
    lasted_s: float | None
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One thing of the job itself, or one attempt; exactly one of the two is set."""

    entry: Entry | None = None
    attempt: AttemptSection | None = None


@bp.get("/jobs/<job_id>")
@shared
def get_job(job_id: str) -> ResponseReturnValue:
    """Show one job. Query: `attempt`, the number of one; `ranks`, `from_s` and `to_s`."""
    number, instant = request_body.row_id("job", job_id), now()
    query = parameters.read(JobParameters, is_empty_absent=True)
    selection = Selection(
        attempt=query.attempt, ranks=query.ranks, from_s=query.from_s, to_s=query.to_s
    )
    with read_session() as session:
        story = job_story(session, number)
        spec = spec_of(story)
        why = why_job_waits(session, story.job, now=instant)
        attempt = shown_attempt(session, backend().drawings, story, spec, selection)
        compared = comparison(session, story, spec)
        shown_logs = None if attempt is None else _logs(session, attempt)
    state = story.job.state
    details = _measured_of(story, attempt)
    return page_with_charts(
        "job.html",
        job=story.job,
        story=story,
        chapters=chapters_of(story),
        spec=spec,
        measurement=story.measurement,
        quantities=other_known_quantities(story.measurement),
        waits_because=why,
        attempt=attempt,
        logs=shown_logs,
        selection=selection,
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
        may_retry=state in UNSUCCESSFUL_JOB_STATES,
    )


@bp.get("/jobs/<job_id>/history")
@costly
def get_history(job_id: str) -> ResponseReturnValue:
    """Show what sweeps measured of the job's cell. Query: `before`, only sweeps of smaller ids."""
    before_id = parameters.read(CellHistoryParameters).before
    number = request_body.row_id("job", job_id)
    with read_session() as session:
        found = read_history(session, number, before_id=before_id)
    return page_with_charts(
        "history.html",
        history=found,
        points=list(reversed(found.points)),
        figures=[drawn(figure) for figure in history_figures(found)],
        before_id=before_id,
    )


@bp.get("/jobs/<job_id>/log")
def get_log(job_id: str) -> ResponseReturnValue:
    """Send a rank's whole log as a file. Query: `attempt`, by default the last; `rank`, 0."""
    query = parameters.read(RankParameters)
    number = request_body.row_id("job", job_id)
    with read_session() as session:
        chosen = job_detail(session, number).find_attempt(query.attempt)
        if chosen is None:
            raise NotFound(f"job {number} had no attempt yet, so nothing was written")
        rank, token = chosen.find_rank(query.rank).rank, chosen.attempt.id
        first = log_stretch(session, token, rank=rank)
    pieces = _pieces(backend().engine, first, token=token, rank=rank)
    response = Response(pieces, content_type="text/plain; charset=utf-8")
    name = f"job-{number}-attempt-{chosen.attempt.number}-rank-{rank}.log"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@bp.post("/jobs/<job_id>/cancel")
@needs(Scope.SUBMIT)
def post_cancel(job_id: str) -> ResponseReturnValue:
    """Cancel the job."""
    number = request_body.row_id("job", job_id)
    with write_session() as session:
        has_changed = request_cancel_job(session, number, now=now(), by=caller().token)
    flash("Cancelled." if has_changed else "There was nothing to cancel any more.")
    return wake_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


@bp.post("/jobs/<job_id>/retry")
@needs(Scope.SUBMIT)
def post_retry(job_id: str) -> ResponseReturnValue:
    """Run the job again."""
    number = request_body.row_id("job", job_id)
    with write_session() as session:
        retry_job(session, number, now=now(), by=caller().token)
    flash("Back in the queue.")
    return wake_after(redirect(url_for(".get_job", job_id=number), HTTPStatus.SEE_OTHER))


def _measured_of(story: JobHistory, attempt: ShownAttempt | None) -> Mapping[str, Any]:
    """Return the details of the measurement if it is of the attempt that is shown."""
    own = story.measurement
    if own is None or attempt is None or own.attempt_id != attempt.attempt.id:
        return {}
    return own.details or {}


def chapters_of(story: JobHistory) -> list[Chapter]:
    """Return the chapters of a story in the order in which they began."""
    attempts = {one.id: _attempt_story(one, story) for one in story.attempts}
    chapters: list[Chapter] = []
    events = list(story.events)
    if not story.is_cut:
        chapters.append(Chapter(entry=_submitted(story)))
        if events and events[0].event == _QUEUED and events[0].attempt_id is None:
            del events[0]  # that is the same
    opened: set[int] = set()
    for event in events:
        own = attempts.get(event.attempt_id) if event.attempt_id is not None else None
        if own is not None and own.attempt.id not in opened:
            opened.add(own.attempt.id)
            chapters.append(Chapter(attempt=own))
        if own is None or event.event in _OF_JOB:
            chapters.append(Chapter(entry=_entry(event)))
        else:
            before = own.entries[-1].at if own.entries else None
            own.entries.append(_entry(event, before=before))
    # An attempt whose events are missing, such as one copied from elsewhere, is shown too.
    chapters += [Chapter(attempt=one) for token, one in attempts.items() if token not in opened]
    return chapters


def _attempt_story(attempt: AttemptRow, story: JobHistory) -> AttemptSection:
    ended_at = attempt.ended_at
    return AttemptSection(
        attempt=attempt,
        lasted_s=None if ended_at is None else (ended_at - attempt.leased_at).total_seconds(),
        is_open=attempt.state in ACTIVE_ATTEMPT_STATES or attempt is story.attempts[-1],
    )


def _submitted(story: JobHistory) -> Entry:
    return Entry(
        at=story.job.created_at,
        event="job: submitted",
        meaning=f"with the sweep {story.sweep_name}",
        reason=None,
        tone="",
    )


def _entry(event: JobEvent, *, before: dt.datetime | None = None) -> Entry:
    tone = "bad" if event.event in _BAD else "good" if event.event in _GOOD else ""
    return Entry(
        at=event.at,
        event=event.event,
        meaning=_MEANINGS.get(event.event, ""),
        reason=event.reason,
        tone=tone,
        # Of a web server whose clock is behind the scheduler's, nothing is said.
        after_s=None
        if before is None or event.at < before
        else (event.at - before).total_seconds(),
    )


def _logs(session: Session, shown: ShownAttempt) -> ShownLogs:
    """Return the last lines of an attempt's ranks, first of those that failed."""
    attempt = shown.attempt
    ranks = sorted(shown.rows, key=lambda row: (_failure(row) is None, row.rank))
    foremost = ranks[:_RANKS_SHOWN]
    ends = log_ends(session, attempt.id, ranks=[row.rank for row in foremost])
    return ShownLogs(
        job_id=attempt.job_id,
        attempt=attempt.number,
        logs=[_log_end(row, ends.get(row.rank)) for row in foremost],
        others=sorted(row.rank for row in ranks[_RANKS_SHOWN:]),
    )


def _pieces(engine: sa.Engine, first: LogRange, *, token: int, rank: int) -> Iterator[str]:
    """Read on while it is sent; a slow reader must keep no connection to the store."""
    stretch = first
    yield stretch.text
    while not stretch.is_end:
        with reading(engine) as session:
            begin = stretch.next_character
            stretch = log_stretch(session, token, rank=rank, first_character=begin)
        yield stretch.text


def _log_end(row: RankRow, end: LogEnd | None) -> ShownLog:
    # What ended before agents sent logs has only what its last report holds.
    text = end.text if end is not None else str((row.ended or {}).get("log_tail", ""))
    whole = readable(text).removesuffix("\n")
    lines = last_lines(whole, _LINES_SHOWN, most_characters=_CHARACTERS_SHOWN)
    return ShownLog(
        rank=row.rank,
        agent_id=row.agent_id,
        failure=_failure(row),
        lines=lines,
        is_whole=end is not None and len(text) == end.character_count and lines == whole,
        character_count=None if end is None else end.character_count,
    )


def _failure(row: RankRow) -> Failure | None:
    found = (row.ended or {}).get("failure")
    return None if found is None else from_json(Failure, found)
