"""Requests with an `Idempotency-Key` and their answers, stored for a day.

A request is recorded in the same transaction as its change, so it is never carried out twice. Its
answer is added once there is one. A recorded request without an answer means that the server was
stopped in between.
"""

from __future__ import annotations

import datetime as dt

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from farm.store.engine import insert_into
from farm.store.tables import IdempotentAnswer

KEPT = dt.timedelta(days=1)
MOST_KEPT = 2_000


def find_answer(session: Session, name: str, *, now: dt.datetime) -> IdempotentAnswer | None:
    """Return the record of a request of the last day; `name`: of its caller, path and key."""
    known = session.get(IdempotentAnswer, name)
    return known if known is not None and known.begun_at > now - KEPT else None


def note_request(session: Session, name: str, request_digest: str, *, now: dt.datetime) -> bool:
    """Record that this transaction carries out a request; False: another one has done so."""
    session.execute(
        delete(IdempotentAnswer).where(
            IdempotentAnswer.name == name, IdempotentAnswer.begun_at <= now - KEPT
        )
    )
    row = {"name": name, "request_digest": request_digest, "begun_at": now}
    noted = session.execute(
        insert_into(session, IdempotentAnswer)
        .values(row)
        .on_conflict_do_nothing()
        .returning(IdempotentAnswer.name)
    )
    return noted.first() is not None


def keep_answer(session: Session, answer: IdempotentAnswer) -> None:
    """Store an answer; delete those older than a day, and the oldest beyond `MOST_KEPT`."""
    values = {c.name: getattr(answer, c.name) for c in IdempotentAnswer.__table__.columns}
    insert = insert_into(session, IdempotentAnswer).values(values)
    changed = {name: value for name, value in values.items() if name != "name"}
    session.execute(insert.on_conflict_do_update(index_elements=["name"], set_=changed))
    newest = select(IdempotentAnswer.begun_at).order_by(IdempotentAnswer.begun_at.desc())
    first_too_many = session.scalar(newest.offset(MOST_KEPT).limit(1))
    before = max(answer.begun_at - KEPT, first_too_many or answer.begun_at - KEPT)
    session.execute(delete(IdempotentAnswer).where(IdempotentAnswer.begun_at <= before))
