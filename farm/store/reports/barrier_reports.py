"""Stores what ranks report at barriers and at their end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import RankPhase
from farm.messages.reports import (
    REPORT_NAMES,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Report,
    ReportBody,
    Shaped,
)
from farm.messages.trainer_lines import Failure, FailureKind
from farm.store.tables import RankRow
from farm.values.codec import to_json

# An attempt's ranks by number, all of them.
Gang: TypeAlias = Mapping[int, RankRow]

# The phase that a report proves, and the column that it is kept in.
_BARRIERS: dict[type, tuple[RankPhase, str]] = {
    Prepared: (RankPhase.PREPARED, "prepared"),
    PeersMeasured: (RankPhase.MEASURED, "peers"),
    Shaped: (RankPhase.SHAPED, "shaped"),
    RankStarted: (RankPhase.STARTED, "started"),
    RankEnded: (RankPhase.ENDED, "ended"),
}
_KINDS = frozenset(REPORT_NAMES[kind] for kind in _BARRIERS)
_REASON_CHARACTERS = 500
_ORDER = {phase: number for number, phase in enumerate(RankPhase)}


def gangs_at_barriers(session: Session, reports: Iterable[Report]) -> dict[int, Gang]:
    """Read the gangs of which some rank has passed a barrier, by token, with one query.

    The caller has locked their attempts: what other collectors have stored of them is seen.
    """
    gangs: dict[int, dict[int, RankRow]] = {r.token: {} for r in reports if r.kind in _KINDS}
    if gangs:
        for rank in session.scalars(select(RankRow).where(RankRow.attempt_id.in_(gangs))):
            gangs[rank.attempt_id][rank.rank] = rank
    return {**gangs}


def fail_rank(session: Session, token: int, rank: int, *, reason: str, now: dt.datetime) -> None:
    """End a rank that has reported what cannot be: nothing can be measured of its attempt.

    The caller has locked the attempt.
    """
    row = session.get_one(RankRow, (token, rank))
    if row.ended is not None:
        return
    failure = Failure(kind=FailureKind.SENSELESS, message=reason[:_REASON_CHARACTERS])
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    fields = to_json(ended)
    assert isinstance(fields, dict)
    row.ended, row.ended_at = fields, now
    row.phase, row.commanded_at = RankPhase.ENDED, None


def pass_barrier(gang: Gang, report: Report, body: ReportBody, *, now: dt.datetime) -> bool:
    """Note what a rank has reached; whether there is now something to decide.

    While a rank of the gang is behind there is nothing. So the scheduler is not woken for each: the
    round for the last rank would have to wait until the round before it is over.
    """
    rank = gang[report.rank]
    phase, column = _BARRIERS[type(body)]
    if getattr(rank, column) is None:
        setattr(rank, column, to_json(body))
        # A repeated or late report never moves it back.
        if _ORDER[phase] > _ORDER[rank.phase]:
            rank.phase, rank.commanded_at = phase, None
        if phase is RankPhase.ENDED:
            rank.ended_at = now
        if isinstance(body, PeersMeasured):
            rank.control_s = body.control_s
    if isinstance(body, RankEnded) and body.failure is not None:
        return True
    return all(_ORDER[other.phase] >= _ORDER[phase] for other in gang.values())
