"""What the first page sums up over all jobs."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.dashboard import finished_per_hour
from farm.store.engine import reading, writing
from farm.store.tables import JobRow
from tests.factories import NOW, add_attempt, add_sweep, seconds


def finish(
    session: Session, *, hours_ago: float, state: AttemptState = AttemptState.SUCCEEDED
) -> None:
    [job_id] = add_sweep(session)
    add_attempt(session, job_id, state=state)
    session.get_one(JobRow, job_id).finished_at = NOW - seconds(hours_ago * 3600)


def hours(engine: sa.Engine) -> list[tuple[int, int, int]]:
    with reading(engine) as session:
        found = finished_per_hour(session, now=NOW, hour_count=24)
    return [(hour.hours_ago, hour.succeeded_count, hour.failed_count) for hour in found]


def test_hours_begin_with_the_first_that_finished_anything(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for ago in (0.0, 0.5, 0.99, 3.01):
            finish(session, hours_ago=ago)
        finish(session, hours_ago=1.5, state=AttemptState.FAILED)
    assert hours(engine) == [(3, 1, 0), (2, 0, 0), (1, 0, 1), (0, 3, 0)]


def test_what_has_no_result_or_is_long_over_does_not_count(engine: sa.Engine) -> None:
    assert hours(engine) == []
    with writing(engine) as session:
        finish(session, hours_ago=0.1, state=AttemptState.CANCELLED)
        finish(session, hours_ago=24.01)
        [waiting] = add_sweep(session)
        add_attempt(session, waiting, state=AttemptState.LOST)
    assert hours(engine) == []


def test_a_clock_that_is_ahead_makes_no_hour_of_its_own(engine: sa.Engine) -> None:
    with writing(engine) as session:
        finish(session, hours_ago=-1.5)
        finish(session, hours_ago=23.99)
    found = hours(engine)
    assert (found[0], found[-1], len(found)) == ((23, 1, 0), (0, 1, 0), 24)
