"""Logs: the output of one rank's trainers, and the messages about sweeps and agents."""

from __future__ import annotations

from typing import Annotated

from apiflask import APIBlueprint
from flask import jsonify
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, FINAL_JOB_STATES
from farm.messages.reports import LONGEST_LOG_CHARACTERS
from farm.store.notifications import list_deliveries
from farm.store.reports.logs import log_stretch
from farm.store.sweeps.jobs import job_detail
from web import etags, parameters, request_body
from web.api.schema import answers, shapes, sweep_answers
from web.api.schema.openapi import described
from web.backend import read_session
from web.parameters import WHOLE, PageParameters, RankParameters, RowId

bp = APIBlueprint("api_logs", __name__, url_prefix="/api/v1", tag="Jobs")


class LogParameters(RankParameters):
    """Which part of which log."""

    first: Annotated[int, Field(ge=0, le=2 * LONGEST_LOG_CHARACTERS), WHOLE] = Field(
        0,
        alias="from",
        description="The character to begin with, from 0: `next` of an earlier answer.",
    )


class MessagesParameters(PageParameters):
    """Which messages are listed."""

    sweep: RowId | None = Field(None, description="Messages about this sweep alone.")


@bp.get("/jobs/<job_id>/log")
@described(bp, answers.Log, query=LogParameters, is_cacheable=True)
def get_log(job_id: str) -> ResponseReturnValue:
    """Return the output of one rank's trainers, at most some hundred thousand characters.

    Continue from `next` until `is_complete`. If `text` is empty and `is_complete` false, ask again
    later.
    """
    query = parameters.read(LogParameters)
    number, begin = request_body.row_id("job", job_id), query.first
    with read_session() as session:
        detail = job_detail(session, number)
        chosen = detail.find_attempt(query.attempt)
        if chosen is None:
            return jsonify(_nothing(number, begin, is_over=detail.job.state in FINAL_JOB_STATES))
        rank = chosen.find_rank(query.rank).rank
        stretch = log_stretch(session, chosen.attempt.id, rank=rank, first_character=begin)
    is_over = chosen.attempt.state not in ACTIVE_ATTEMPT_STATES
    answer: answers.Log = {
        "job_id": number,
        "attempt": chosen.attempt.number,
        "rank": rank,
        "text": stretch.text,
        "next": stretch.next_character,
        "is_complete": is_over and stretch.is_end,
    }
    response = jsonify(answer)
    return etags.answer(response) if is_over else response


@bp.get("/notifications")
@described(bp, sweep_answers.NotificationList, query=MessagesParameters)
def get_notifications() -> ResponseReturnValue:
    """List the messages about sweeps and agents, newest first, each to one address."""
    query = parameters.read(MessagesParameters)
    limit = query.limit
    with read_session() as session:
        found = list_deliveries(
            session, sweep_id=query.sweep, before_id=query.cursor, limit=limit + 1
        )
    return jsonify(shapes.listed([shapes.notification(one) for one in found], page_size=limit))


def _nothing(job_id: int, begin: int, *, is_over: bool) -> answers.Log:
    return {
        "job_id": job_id,
        "attempt": None,
        "rank": None,
        "text": "",
        "next": begin,
        "is_complete": is_over,
    }
