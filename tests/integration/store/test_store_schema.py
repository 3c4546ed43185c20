from __future__ import annotations

import datetime as dt
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError, StatementError

from farm.errors import FarmError, Unreachable
from farm.gang.lifecycle import AttemptState
from farm.store.base import Table
from farm.store.engine import SQLITE, make_engine, reading, writing
from farm.store.result_tables import SampleRow
from farm.store.schema import check_schema, check_tables, downgrade, upgrade
from farm.store.tables import AttemptRow, JobRow, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_job


def test_the_migrations_build_what_the_tables_describe(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": _is_no_partition, "compare_type": True}
        )
        assert compare_metadata(context, Table.metadata) == []


def test_a_store_that_lacks_a_table_is_found_out_and_one_that_has_more_is_good(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        session.execute(sa.text("CREATE INDEX ix_somebodys ON jobs (id, sweep_id)"))
        session.execute(sa.text("ALTER TABLE jobs ADD COLUMN somebodys INTEGER"))
    check_tables(engine)
    with writing(engine) as session:
        session.execute(sa.text("DROP TABLE kept_answers"))
    with pytest.raises(FarmError, match="table kept_answers is missing: change this"):
        check_tables(engine)


def test_the_migrations_build_every_constraint(engine: sa.Engine) -> None:
    migrated = constraints(engine)
    assert migrated  # or the comparison below would hold of nothing
    downgrade(engine, "base")
    Table.metadata.create_all(engine)
    assert migrated == constraints(engine)


def test_downgrade_takes_everything_away_and_upgrade_brings_it_back(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        add_attempt(session, add_job(session), ["a1"])
        session.add(SampleRow(day=NOW.date(), attempt_id=1, rank=0, tick=0))
    downgrade(engine, "base")
    left = set(sa.inspect(engine).get_table_names())
    assert left == {"alembic_version"}
    upgrade(engine)
    with reading(engine) as session:
        assert session.scalars(sa.select(JobRow)).all() == []


def test_upgrade_keeps_what_is_stored(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
    upgrade(engine)
    with reading(engine) as session:
        assert session.get_one(JobRow, job_id).model == "mlp"


def test_a_store_without_a_schema_asks_for_an_upgrade(empty_engine: sa.Engine) -> None:
    with pytest.raises(Unreachable, match=r"has schema none.*farm db upgrade") as caught:
        check_schema(empty_engine)
    assert "\n" not in str(caught.value)
    upgrade(empty_engine)
    check_schema(empty_engine)


@pytest.mark.parametrize("table", ["customers", "jobs"])
def test_a_database_of_another_program_is_left_as_it_is(
    empty_engine: sa.Engine, table: str
) -> None:
    url = empty_engine.url
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {table} (id INTEGER)"))
    file = Path(url.database or "") if url.get_backend_name() == SQLITE else None
    before = file and file.read_bytes()
    with pytest.raises(
        Unreachable, match=f"has tables of another program, such as '{table}'"
    ) as no:
        upgrade(empty_engine)
    assert "\n" not in str(no.value)
    assert sa.inspect(empty_engine).get_table_names() == [table]
    assert (file and file.read_bytes()) == before


def test_a_schema_from_the_future_is_refused_everywhere(engine: sa.Engine) -> None:
    with writing(engine) as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (check_schema, upgrade):
        with pytest.raises(Unreachable, match="9999, which this benchfarm does not know"):
            refused(engine)


def test_processes_may_upgrade_at_once(empty_engine: sa.Engine, database_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    processes = [
        context.Process(target=_upgrade_at_once, args=(database_url, start)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    try:
        start.wait(timeout=60)
    finally:
        for process in processes:
            process.join(timeout=60)
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    check_schema(empty_engine)


def test_a_row_must_belong_to_something(engine: sa.Engine) -> None:
    attempt = AttemptRow(
        job_id=77, number=1, state=AttemptState.PREPARING, state_since=NOW, leased_at=NOW
    )
    with pytest.raises(IntegrityError), writing(engine) as session:
        session.add(attempt)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET state = 'resting'",
        "UPDATE jobs SET state = 'running'",
        "UPDATE jobs SET attempt_id = 1",
    ],
)
def test_the_database_refuses_a_job_in_an_impossible_state(
    engine: sa.Engine, statement: str
) -> None:
    with writing(engine) as session:
        add_job(session)
    with pytest.raises(IntegrityError), writing(engine) as session:
        session.execute(sa.text(statement))


def test_fencing_tokens_are_never_used_twice(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        token = add_attempt(session, job_id, state=AttemptState.LOST)
        session.execute(sa.delete(AttemptRow))
        assert add_attempt(session, job_id) > token


def test_instants_come_back_in_utc(engine: sa.Engine) -> None:
    there = dt.timezone(dt.timedelta(hours=5, minutes=30))
    instant = dt.datetime(2026, 3, 1, 2, 0, 0, 123456, tzinfo=there)
    with writing(engine) as session:
        session.add(SweepRow(name="s", spec={}, skipped=[], created_at=instant))
    with reading(engine) as session:
        stored = session.scalars(sa.select(SweepRow.created_at)).one()
        later = session.scalars(
            sa.select(SweepRow.id).where(
                SweepRow.created_at > instant - dt.timedelta(microseconds=1)
            )
        ).all()
    assert stored == instant
    assert stored.tzinfo is dt.UTC
    assert later == [1]


def test_naive_instants_are_refused(engine: sa.Engine) -> None:
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(StatementError, match="naive"), writing(engine) as session:
        session.add(SweepRow(name="s", spec={}, skipped=[], created_at=naive))


def test_absent_json_is_null_and_not_the_text_null(engine: sa.Engine) -> None:
    with writing(engine) as session:
        session.add(SampleRow(day=NOW.date(), attempt_id=1, rank=0, tick=0, extra=None))
    with reading(engine) as session:
        assert session.scalar(sa.text("SELECT count(*) FROM samples WHERE extra IS NULL")) == 1


def _upgrade_at_once(url: str, start: Any) -> None:
    engine = make_engine(url)
    start.wait(timeout=60)
    upgrade(engine)
    engine.dispose()


def _is_no_partition(name: str | None, kind: str, parents: Any) -> bool:
    return not (kind == "table" and name is not None and name.startswith("samples_"))


def constraints(engine: sa.Engine) -> set[tuple[object, ...]]:
    """Names and contents, since Alembic's comparison does not look at CHECK and PRIMARY KEY."""
    inspector = sa.inspect(engine)
    found: set[tuple[object, ...]] = set()
    for table in Table.metadata.tables:
        key = inspector.get_pk_constraint(table)
        found.add((table, key["name"], *key["constrained_columns"]))
        for check in inspector.get_check_constraints(table):
            found.add((table, check["name"], check["sqltext"]))
        for foreign in inspector.get_foreign_keys(table):
            found.add((table, foreign["name"], foreign["referred_table"]))
        for unique in inspector.get_unique_constraints(table):
            found.add((table, unique["name"], *unique["column_names"]))
        for index in inspector.get_indexes(table):
            found.add((table, index["name"], *index["column_names"]))
    return found
