"""Which measurements a tracker lacks, whatever is sent, removed and measured again."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import TrackerCursor
from farm.store.tracker_cursors import (
    LONGEST_TRACKER_PAUSE,
    MOST_TRIES,
    claim_cursor,
    note_sent,
    note_try,
    pending_jobs,
    start_cursor,
)
from tests.factories import NOW, add_attempt, add_job, add_measurement, seconds

NAME = "mlflow"


def measure(session: Session, *, number: int = 1, job_id: int | None = None) -> int:
    """Add a measured job, or another attempt of one; return the attempt."""
    job_id = job_id or add_job(session)
    token = add_attempt(session, job_id, state=AttemptState.FAILED, number=number)
    add_measurement(session, f"job {job_id}", job_id=job_id, attempt_id=token)
    return token


def start(session: Session) -> None:
    start_cursor(session, NAME, now=NOW)


def pending(session: Session) -> list[int]:
    cursor = session.get_one(TrackerCursor, NAME)
    return [one.token for one in pending_jobs(session, cursor, limit=10)]


def test_it_begins_with_what_is_measured_from_then_on(engine: sa.Engine) -> None:
    with writing(engine) as session:
        measure(session)
        start(session)
        later = measure(session)
        start(session)  # another scheduler
        assert pending(session) == [later]


def test_what_is_sent_is_no_more_pending_however_much_is_measured(engine: sa.Engine) -> None:
    with writing(engine) as session:
        start(session)
        first, second = measure(session), measure(session)
        note_sent(session, NAME, second, now=NOW)
        assert pending(session) == [first]
        imported = [f"row {n}" for n in range(1100)]
        for key in imported:
            add_measurement(session, key, origin="a table")
        note_sent(session, NAME, first, now=NOW)
        third = measure(session)
        assert pending(session) == [third]
        cursor = session.get_one(TrackerCursor, NAME)
        assert cursor.since_id > 50  # of 1,102, of which the newest 1,000 are looked up
        assert cursor.sent_tokens == []


def test_a_retry_is_pending_even_if_it_gets_the_id_of_what_it_replaces(engine: sa.Engine) -> None:
    with writing(engine) as session:
        start(session)
        token = measure(session)
        note_sent(session, NAME, token, now=NOW)
        [row] = session.scalars(sa.select(MeasurementRow)).all()
        job_id, former_id = row.job_id, row.id
        session.delete(row)
        session.flush()
        again = measure(session, number=2, job_id=job_id)
        [row] = session.scalars(sa.select(MeasurementRow)).all()
        if session.get_bind().dialect.name == "sqlite":
            assert row.id == former_id
        assert pending(session) == [again]


def test_what_failed_too_often_is_left_out_and_holds_nothing_up(engine: sa.Engine) -> None:
    with writing(engine) as session:
        start(session)
        first, second = measure(session), measure(session)
        for _ in range(MOST_TRIES):
            assert pending(session) == [first, second]
            note_try(session, NAME, first)
        assert pending(session) == [second]


def test_a_claim_is_over_in_time_also_after_a_clock_that_was_ahead(engine: sa.Engine) -> None:
    with writing(engine) as session:
        start(session)
        assert claim_cursor(session, NAME, now=NOW, claim=seconds(60))
        assert not claim_cursor(session, NAME, now=NOW + seconds(59), claim=seconds(60))
        assert claim_cursor(session, NAME, now=NOW + seconds(60), claim=seconds(60))
    early = NOW - 2 * LONGEST_TRACKER_PAUSE
    with writing(engine) as session:
        assert claim_cursor(session, NAME, now=early, claim=seconds(60))
    with reading(engine) as session:
        assert session.get_one(TrackerCursor, NAME).due_at == early + seconds(60)
