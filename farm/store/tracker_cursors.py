"""Stores which measurements each tracker has received, and which process sends more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.gang.retries import is_to_come
from farm.store.engine import insert_into
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, TrackerCursor

MOST_TRIES = 3
LONGEST_TRACKER_PAUSE = dt.timedelta(minutes=10)
# The newest measurements are looked up one by one: transactions may end in another order than that
# of their ids, and SQLite gives the id of a measurement that a retry has removed to another one.
_NEWEST_COUNT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """A measured job that a tracker lacks; `token`: of the attempt that measured it."""

    job_id: int
    token: int
    measured_at: dt.datetime


def start_cursor(session: Session, tracker: str, *, now: dt.datetime) -> None:
    """Begin with measurements from now on, unless there is a cursor already."""
    since_id = _newest(session) - _NEWEST_COUNT
    values = {"since_id": since_id, "sent_tokens": _tokens_after(session, since_id), "due_at": now}
    session.execute(
        insert_into(session, TrackerCursor)
        .values(tracker=tracker, tries={}, failure_count=0, **values)
        .on_conflict_do_nothing()
    )


def pending_jobs(session: Session, cursor: TrackerCursor, *, limit: int) -> list[PendingJob]:
    """Return the jobs to send, oldest first, without those that failed too often."""
    over = _over(cursor)
    rows = session.execute(
        select(AttemptRow.job_id, AttemptRow.id, MeasurementRow.created_at)
        .join(MeasurementRow, MeasurementRow.attempt_id == AttemptRow.id)
        .where(MeasurementRow.id > cursor.since_id)
        .order_by(MeasurementRow.id)
        .limit(limit + len(over))
    )
    found = [PendingJob(job_id=row[0], token=row[1], measured_at=row[2]) for row in rows]
    return [one for one in found if one.token not in over][:limit]


def given_up(cursor: TrackerCursor) -> list[int]:
    """Return the attempts that were tried too often."""
    return [int(token) for token, count in cursor.tries.items() if count >= MOST_TRIES]


def is_due(cursor: TrackerCursor, *, now: dt.datetime) -> bool:
    """Whether no process sends, and the pause after a failure is over."""
    return not is_to_come(cursor.due_at, now=now, longest=LONGEST_TRACKER_PAUSE)


def claim_cursor(session: Session, tracker: str, *, now: dt.datetime, claim: dt.timedelta) -> bool:
    """Claim the tracker for this process for a time; False while another process has it."""
    cursor = _locked(session, tracker)
    if not is_due(cursor, now=now):
        return False
    cursor.due_at = now + claim
    return True


def note_try(session: Session, tracker: str, token: int) -> None:
    """Count a try before it is made, so a try that ends the process counts, too."""
    cursor = _locked(session, tracker)
    cursor.tries = {**cursor.tries, str(token): cursor.tries.get(str(token), 0) + 1}


def note_sent(session: Session, tracker: str, token: int, *, now: dt.datetime) -> None:
    """Note that the tracker has an attempt, and forget what need not be looked up again."""
    cursor = _locked(session, tracker)
    cursor.sent_tokens = [*cursor.sent_tokens, token]
    cursor.tries = {one: count for one, count in cursor.tries.items() if one != str(token)}
    cursor.sent_at = now
    newest, over = _newest(session), _over(cursor)
    former = session.execute(
        select(MeasurementRow.id, AttemptRow.id)
        .outerjoin(AttemptRow, AttemptRow.id == MeasurementRow.attempt_id)
        .where(MeasurementRow.id > cursor.since_id, MeasurementRow.id <= newest - _NEWEST_COUNT)
        .order_by(MeasurementRow.id)
        .limit(_NEWEST_COUNT)
    )
    for measurement_id, of_attempt in former:
        if of_attempt is not None and of_attempt not in over:  # without: it was imported
            break
        cursor.since_id = measurement_id
    left = {*_tokens_after(session, cursor.since_id)}
    cursor.sent_tokens = [one for one in cursor.sent_tokens if one in left]
    cursor.tries = {one: count for one, count in cursor.tries.items() if int(one) in left}


def release_cursor(
    session: Session, tracker: str, *, due_at: dt.datetime, failure_count: int, trouble: str | None
) -> None:
    """End a claim. `failure_count`: of turns, in a row; `trouble`: why the last one failed."""
    cursor = _locked(session, tracker)
    cursor.due_at, cursor.failure_count, cursor.trouble = due_at, failure_count, trouble


def _over(cursor: TrackerCursor) -> set[int]:
    return {*cursor.sent_tokens, *given_up(cursor)}


def _newest(session: Session) -> int:
    return session.scalar(select(func.max(MeasurementRow.id))) or 0


def _tokens_after(session: Session, since_id: int) -> Sequence[int]:
    return session.scalars(
        select(AttemptRow.id)
        .join(MeasurementRow, MeasurementRow.attempt_id == AttemptRow.id)
        .where(MeasurementRow.id > since_id)
    ).all()


def _locked(session: Session, tracker: str) -> TrackerCursor:
    return session.get_one(TrackerCursor, tracker, with_for_update=True, populate_existing=True)
