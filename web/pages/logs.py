"""The output of trainers: its end on a job's page, all of it as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from flask import Blueprint, Response
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.messages.trainer_lines import Failure
from farm.store.engine import reading
from farm.store.reports.logs import LogEnd, LogStretch, log_ends, log_stretch
from farm.store.sweeps.job_parts import find_attempt, find_rank
from farm.store.sweeps.jobs import AttemptDetail, job_detail
from farm.store.tables import RankRow
from farm.text.log_text import last_lines, readable
from farm.values.codec import from_json
from web import parameters, received
from web.backend import backend, read_session
from web.job.attempts import ATTEMPT, RANK

bp = Blueprint("logs", __name__)

_LINES_SHOWN = 200
_CHARACTERS_SHOWN = 16_000
# Of the others there is only a link: 64 of them live would be a page of a megabyte.
_RANKS_SHOWN = 8


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


def shown(session: Session, attempt: AttemptDetail) -> ShownLogs:
    """Return the last lines of an attempt's ranks, first of those that failed."""
    ranks = sorted(attempt.ranks, key=lambda row: (_failure(row) is None, row.rank))
    foremost = ranks[:_RANKS_SHOWN]
    ends = log_ends(session, attempt.attempt.id, ranks=[row.rank for row in foremost])
    return ShownLogs(
        job_id=attempt.attempt.job_id,
        attempt=attempt.attempt.number,
        logs=[_shown(row, ends.get(row.rank)) for row in foremost],
        others=sorted(row.rank for row in ranks[_RANKS_SHOWN:]),
    )


@bp.get("/jobs/<job_id>/log")
def get_log(job_id: str) -> ResponseReturnValue:
    """Send a rank's whole log as a file. Query: `attempt`, by default the last; `rank`, 0."""
    given = parameters.read((ATTEMPT, RANK))
    number = received.row_id("job", job_id)
    with read_session() as session:
        chosen = find_attempt(job_detail(session, number), given[ATTEMPT])
        if chosen is None:
            raise NotFound(f"job {number} had no attempt yet, so nothing was written")
        rank, token = find_rank(chosen, given[RANK]).rank, chosen.attempt.id
        first = log_stretch(session, token, rank=rank)
    pieces = _pieces(backend().engine, first, token=token, rank=rank)
    response = Response(pieces, content_type="text/plain; charset=utf-8")
    name = f"job-{number}-attempt-{chosen.attempt.number}-rank-{rank}.log"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _pieces(engine: sa.Engine, first: LogStretch, *, token: int, rank: int) -> Iterator[str]:
    """Read on while it is sent; a slow reader must keep no connection to the store."""
    stretch = first
    yield stretch.text
    while not stretch.is_end:
        with reading(engine) as session:
            begin = stretch.next_character
            stretch = log_stretch(session, token, rank=rank, first_character=begin)
        yield stretch.text


def _shown(row: RankRow, end: LogEnd | None) -> ShownLog:
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
