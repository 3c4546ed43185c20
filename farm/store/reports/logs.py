"""Stores the output of trainers as it arrives, and reads it from any position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from farm.messages.reports import LONGEST_LOG_PART_CHARACTERS, LogPart
from farm.store.engine import insert_into
from farm.store.result_tables import LogPartRow
from farm.store.tables import RankRow

# Of one reading. Parts may be of a few characters, or of some ten thousand.
_CHARACTERS_AT_ONCE = 256 * 1024
_PARTS_AT_ONCE = 5000
_FETCHED_AT_ONCE = 32
# What the end of a log is: its last part, and all of the one before it.
_END_CHARACTERS = LONGEST_LOG_PART_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A piece of a rank's log.

    `next_character`: where to go on, now or later. `is_end`: there is nothing more, for now.
    """

    text: str
    next_character: int
    is_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The last of a rank's log. `character_count`: of the whole log."""

    text: str
    character_count: int


def insert_log_parts(session: Session, *, token: int, rank: int, parts: Sequence[LogPart]) -> None:
    """Store pieces of a rank's log; what begins before the end of the last one changes nothing.

    So a log never takes more room than its length.
    """
    last = (
        select(LogPartRow.first_character + func.length(LogPartRow.text))
        .where(*_is_of(token, rank))
        .order_by(LogPartRow.first_character.desc())
        .limit(1)
    )
    end = session.scalar(last) or 0
    rows = []
    for part in parts:
        first = part.first_character
        if part.text and first >= end:
            end = first + len(part.text)
            row = {"attempt_id": token, "rank": rank, "first_character": first, "text": part.text}
            rows.append(row)
    if not rows:
        return
    session.connection().execute(insert_into(session, LogPartRow).on_conflict_do_nothing(), rows)


def log_stretch(session: Session, token: int, *, rank: int, first_character: int = 0) -> LogRange:
    """Return the next part of a rank's log, some hundred thousand characters at most.

    What the store has lost is passed over.
    """
    texts: list[str] = []
    count, row_count, reached = 0, 0, first_character
    for first, text in _parts_from(session, token, rank=rank, first_character=first_character):
        fresh = text[max(0, reached - first) :]
        reached = max(reached, first + len(text))
        texts.append(fresh)
        count, row_count = count + len(fresh), row_count + 1
        if count >= _CHARACTERS_AT_ONCE:
            is_end = False
            break
    else:
        is_end = row_count < _PARTS_AT_ONCE
    return LogRange(text="".join(texts), next_character=reached, is_end=is_end)


def log_ends(session: Session, token: int, *, ranks: Sequence[int]) -> dict[int, LogEnd]:
    """Return rank to the end of its log, of those of the ranks that have written anything."""
    last_firsts = _last_firsts(session, token, ranks)
    if not last_firsts:
        return {}
    # By their values: joined to the query before, each row would run it again.
    are_last = [
        and_(LogPartRow.rank == rank, LogPartRow.first_character >= first - _END_CHARACTERS)
        for rank, first in last_firsts.items()
    ]
    rows = session.execute(
        select(LogPartRow.rank, LogPartRow.first_character, LogPartRow.text)
        .where(LogPartRow.attempt_id == token, or_(*are_last))
        .order_by(LogPartRow.rank, LogPartRow.first_character)
    )
    texts: dict[int, list[str]] = {}
    counts: dict[int, int] = {}
    for rank, first, text in rows:
        texts.setdefault(rank, []).append(text)
        counts[rank] = first + len(text)
    return {
        rank: LogEnd(text="".join(parts), character_count=counts[rank])
        for rank, parts in texts.items()
    }


def _parts_from(
    session: Session, token: int, *, rank: int, first_character: int
) -> Iterator[tuple[int, str]]:
    which = _is_of(token, rank)
    # The part in which the reading begins, if there is one.
    before = select(func.max(LogPartRow.first_character)).where(
        *which, LogPartRow.first_character <= first_character
    )
    begin = func.coalesce(before.scalar_subquery(), 0)
    query = (
        select(LogPartRow.first_character, LogPartRow.text)
        .where(*which, LogPartRow.first_character >= begin)
        .order_by(LogPartRow.first_character)
        .limit(_PARTS_AT_ONCE)
    )
    with session.execute(query, execution_options={"yield_per": _FETCHED_AT_ONCE}) as rows:
        yield from rows


def _last_firsts(session: Session, token: int, ranks: Sequence[int]) -> dict[int, int]:
    """Return rank to where its last part begins, each found by its index alone."""
    last = (
        select(func.max(LogPartRow.first_character))
        .where(LogPartRow.attempt_id == RankRow.attempt_id, LogPartRow.rank == RankRow.rank)
        .scalar_subquery()
    )
    found = session.execute(
        select(RankRow.rank, last).where(RankRow.attempt_id == token, RankRow.rank.in_(ranks))
    )
    return {rank: first for rank, first in found if first is not None}


def _is_of(token: int, rank: int) -> tuple[ColumnElement[bool], ...]:
    return LogPartRow.attempt_id == token, LogPartRow.rank == rank
