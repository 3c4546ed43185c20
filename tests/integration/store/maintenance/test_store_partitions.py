"""Days of samples on PostgreSQL: made ahead, moved out of the default, read one at a time."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from farm.messages.reports import Sample
from farm.scheduler.main import housekeeping
from farm.store.engine import reading, writing
from farm.store.maintenance.partitions import (
    drop_partition,
    make_partitions,
    missing_days,
    partition_days,
)
from tests.factories import NOW, add_attempt, add_job
from tests.stored.stored_series import insert_samples, samples_of

TODAY = NOW.date()
LONG_AGO = TODAY - dt.timedelta(days=40)

on_postgresql = pytest.mark.parametrize("database_kind", ["postgresql"])


def add_samples(engine: sa.Engine, day: dt.date, *, token: int = 1, ticks: int = 3) -> None:
    with writing(engine) as session:
        samples = [
            Sample(tick=t, cpu_ratio=t / 10, extra={"gpu0_ratio": 0.5}) for t in range(ticks)
        ]
        insert_samples(session, day=day, token=token, rank=0, samples=samples)


def homes(engine: sa.Engine) -> dict[str, int]:
    """Partition to the number of its rows."""
    with reading(engine) as session:
        rows = session.execute(
            sa.text("SELECT tableoid::regclass::text, count(*) FROM samples GROUP BY 1")
        )
        return {name: count for name, count in rows}


@on_postgresql
def test_today_and_the_week_to_come_get_a_partition_each(engine: sa.Engine) -> None:
    week = [TODAY + dt.timedelta(days=n) for n in range(8)]
    assert missing_days(engine, today=TODAY) == week
    assert make_partitions(engine, today=TODAY) == week
    with reading(engine) as session:
        assert partition_days(session) == week
    assert make_partitions(engine, today=TODAY) == []
    assert make_partitions(engine, today=TODAY + dt.timedelta(days=1)) == [
        TODAY + dt.timedelta(days=8)
    ]
    add_samples(engine, TODAY)
    add_samples(engine, week[-1])
    add_samples(engine, TODAY + dt.timedelta(days=9))
    assert homes(engine) == {
        f"samples_{TODAY:%Y_%m_%d}": 3,
        f"samples_{week[-1]:%Y_%m_%d}": 3,
        "samples_default": 3,
    }


@on_postgresql
def test_samples_that_came_before_their_partition_move_into_it_unchanged(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        token = add_attempt(session, add_job(session))
    add_samples(engine, TODAY, token=token, ticks=100)
    add_samples(engine, LONG_AGO, token=token, ticks=5)
    with reading(engine) as session:
        before = samples_of(session, token, rank=0)
    made = make_partitions(engine, today=TODAY)
    assert (made[0], len(made)) == (LONG_AGO, 9)
    assert homes(engine) == {f"samples_{TODAY:%Y_%m_%d}": 100, f"samples_{LONG_AGO:%Y_%m_%d}": 5}
    with reading(engine) as session:
        assert samples_of(session, token, rank=0) == before
    # The key still holds: the same samples again change nothing.
    add_samples(engine, TODAY, token=token, ticks=101)
    assert homes(engine)[f"samples_{TODAY:%Y_%m_%d}"] == 101


@on_postgresql
def test_schedulers_that_make_partitions_at_once_make_each_one_once(engine: sa.Engine) -> None:
    add_samples(engine, TODAY, ticks=1000)
    made: list[dt.date] = []
    surprises: list[BaseException] = []
    gate = threading.Barrier(4)

    def race() -> None:
        gate.wait(timeout=30)
        try:
            made.extend(make_partitions(engine, today=TODAY))
        except BaseException as error:  # a thread's error must reach the test
            surprises.append(error)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert surprises == []
    assert sorted(made) == [TODAY + dt.timedelta(days=n) for n in range(8)]
    assert homes(engine) == {f"samples_{TODAY:%Y_%m_%d}": 1000}


@on_postgresql
def test_a_batch_under_way_into_another_day_is_not_waited_for(engine: sa.Engine) -> None:
    make_partitions(engine, today=TODAY)
    with writing(engine) as collector:
        insert_samples(collector, day=TODAY, token=1, rank=0, samples=[Sample(tick=0)])
        assert make_partitions(engine, today=TODAY + dt.timedelta(days=7)) != []


@on_postgresql
def test_a_day_whose_rows_are_being_stored_is_left_for_later_and_blocks_nobody_for_long(
    engine: sa.Engine,
) -> None:
    with writing(engine) as collector:
        insert_samples(collector, day=TODAY, token=1, rank=0, samples=[Sample(tick=0)])
        assert make_partitions(engine, today=TODAY) == []
        insert_samples(collector, day=TODAY, token=1, rank=0, samples=[Sample(tick=1)])
    assert homes(engine) == {"samples_default": 2}
    assert TODAY in make_partitions(engine, today=TODAY)
    assert homes(engine) == {f"samples_{TODAY:%Y_%m_%d}": 2}


@on_postgresql
def test_samples_that_come_during_the_move_are_not_lost_and_do_not_stop_it(
    engine: sa.Engine,
) -> None:
    add_samples(engine, TODAY, ticks=20_000)
    is_over = threading.Event()
    stored = 0

    def collect() -> None:
        nonlocal stored
        while not is_over.is_set():
            # One that waited for the move finds its partition changed, and comes again.
            with suppress(IntegrityError), writing(engine) as session:
                sample = [Sample(tick=stored)]
                insert_samples(session, day=TODAY, token=2, rank=0, samples=sample)
                session.commit()
                stored += 1

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        assert TODAY in make_partitions(engine, today=TODAY)
    finally:
        is_over.set()
        collector.join(timeout=60)
    assert stored > 0
    assert homes(engine) == {f"samples_{TODAY:%Y_%m_%d}": 20_000 + stored}


@on_postgresql
def test_a_move_that_takes_too_long_is_undone_whole(engine: sa.Engine) -> None:
    add_samples(engine, TODAY, ticks=20_000)
    assert make_partitions(engine, today=TODAY, longest_move_s=0.001) == []
    assert homes(engine) == {"samples_default": 20_000}
    assert TODAY in make_partitions(engine, today=TODAY, longest_move_s=None)


@on_postgresql
def test_the_series_of_one_attempt_is_read_from_one_partition(engine: sa.Engine) -> None:
    make_partitions(engine, today=TODAY)
    with writing(engine) as session:
        token = add_attempt(session, add_job(session))
    for day in range(8):
        add_samples(engine, TODAY + dt.timedelta(days=day), token=token)
    statements: list[tuple[str, Any]] = []

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        if "FROM samples" in statement:
            statements.append((statement, parameters))

    for max_points in (None, 2):
        sa.event.listen(engine, "before_cursor_execute", note)
        with reading(engine) as session:
            assert samples_of(session, token, rank=0, max_points=max_points)
        sa.event.remove(engine, "before_cursor_execute", note)
    assert len(statements) >= 3
    with engine.connect() as connection:
        for statement, parameters in statements:
            plan = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars()
            scanned = {word for line in plan for word in line.split() if word[:8] == "samples_"}
            # An index of the partition may be named too, and an alias such as samples_1.
            tables = {w for w in scanned if not re.fullmatch(r"samples_(\w+_pkey|\d{1,2})", w)}
            assert tables == {f"samples_{TODAY:%Y_%m_%d}"}, statement


@on_postgresql
def test_a_dropped_day_takes_its_samples_and_no_others(engine: sa.Engine) -> None:
    make_partitions(engine, today=TODAY)
    tomorrow = TODAY + dt.timedelta(days=1)
    for day in (TODAY, tomorrow):
        add_samples(engine, day)
    with writing(engine) as session:
        drop_partition(session, TODAY)
    assert homes(engine) == {f"samples_{tomorrow:%Y_%m_%d}": 3}


@on_postgresql
def test_a_scheduler_makes_them_by_itself(engine: sa.Engine) -> None:
    keeping = housekeeping(engine)
    keeping.start()
    deadline = time.monotonic() + 30
    while missing_days(engine, today=dt.datetime.now(dt.UTC).date()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    keeping.stop()


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_sqlite_has_no_partitions_and_needs_none(engine: sa.Engine) -> None:
    assert missing_days(engine, today=TODAY) == []
    assert make_partitions(engine, today=TODAY) == []
    with reading(engine) as session:
        assert partition_days(session) == []


@on_postgresql
def test_a_day_that_takes_too_long_keeps_no_other_from_getting_its_partition(
    engine: sa.Engine,
) -> None:
    add_samples(engine, LONG_AGO)
    with writing(engine) as session:
        session.execute(
            sa.text(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_sleep(60); RETURN OLD; END $$"
            )
        )
        session.execute(
            sa.text(
                "CREATE TRIGGER dawdle BEFORE DELETE ON samples_default "
                "FOR EACH ROW EXECUTE FUNCTION dawdle()"
            )
        )
    made = make_partitions(engine, today=TODAY, longest_move_s=1.0)
    assert made == [TODAY + dt.timedelta(days=n) for n in range(8)]
    assert homes(engine) == {"samples_default": 3}
