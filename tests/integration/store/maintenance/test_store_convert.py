"""Stores and backups from before the first release: refused by everything, and converted."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.spec import TENSORFLOW, JobSpec
from farm.errors import FarmError, Unreachable
from farm.store.base import Table
from farm.store.engine import make_engine, reading, writing
from farm.store.maintenance.backup import back_up, restore
from farm.store.maintenance.convert import convert
from farm.store.maintenance.copy import copy_store
from farm.store.schema import (
    CONVERTIBLE_REVISIONS,
    FORMER_REVISIONS,
    check_schema,
    stamp,
    upgrade,
)
from farm.store.sweeps.jobs import list_jobs
from farm.store.tables import BundlePieceRow, BundleRow, JobRow, SweepRow
from farm.values.codec import from_json
from tests.commands.farm_command import FarmCommand
from tests.factories import add_job
from tests.integration.conftest import new_database
from tests.integration.store.maintenance.test_store_backup import libpq, run
from tests.integration.store.test_store_schema import constraints
from tests.stored.former_store import FORMER_REVISION, contents, make_former_store

NOW = dt.datetime(2026, 11, 2, tzinfo=dt.UTC)


@pytest.fixture
def former(empty_engine: sa.Engine) -> sa.Engine:
    """A store with schema 0014, with rows in every table."""
    make_former_store(empty_engine)
    return empty_engine


@pytest.fixture(params=CONVERTIBLE_REVISIONS)
def any_former(empty_engine: sa.Engine, request: pytest.FixtureRequest) -> sa.Engine:
    """A store with one of the schemas that can be converted."""
    make_former_store(empty_engine, revision=request.param)
    return empty_engine


@pytest.fixture
def shell(former: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(former, tmp_path / "home", monkeypatch)


@pytest.fixture
def empty(request: pytest.FixtureRequest, database_kind: str) -> Iterator[sa.Engine]:
    """Another empty database of the same kind."""
    with new_database(request, database_kind, is_migrated=False) as url:
        engine = make_engine(url)
        yield engine
        engine.dispose()


def _json(value: object) -> Any:
    """Return what a column of JSON holds: SQLite has it as text."""
    return json.loads(value) if isinstance(value, str) else value


def become(engine: sa.Engine, revision: str) -> None:
    with writing(engine) as session:
        stamp(session.connection(), revision)


def test_every_former_revision_is_refused_in_one_line_that_names_the_command(
    former: sa.Engine, empty: sa.Engine, tmp_path: Path
) -> None:
    before = contents(former)
    refusing = (
        check_schema,
        upgrade,
        lambda store: back_up(store, tmp_path / "backup", now=NOW, progress=lambda *_: None),
        lambda store: copy_store(store, empty, now=NOW, is_forced=True, progress=lambda *_: None),
    )
    for revision, refused in itertools.product(FORMER_REVISIONS, refusing):
        become(former, revision)
        with pytest.raises(Unreachable, match=rf"has schema {revision} .*farm db convert") as error:
            refused(former)
        assert "\n" not in str(error.value)
    assert contents(former) == before


def test_a_converted_store_opens_with_all_of_its_rows(any_former: sa.Engine) -> None:
    before = contents(any_former)
    assert all(before.values())
    assert convert(any_former)

    check_schema(any_former)
    after = contents(any_former)
    for row in before["jobs"]:
        row.setdefault("agent_count", row.pop("rank_count", None))
    for row in before["sweeps"]:
        row.setdefault("budget_machine_s", None)
        row.setdefault("budget_used_up_at", None)
    for row in before["step_chunks"]:
        row.setdefault("process", 0)
    for table, column in (("jobs", "cell_hash"), ("measurements", "flags"), ("agents", "facts")):
        for row in (*before[table], *after[table]):
            del row[column]
    assert {table: after[table] for table in before} == before
    assert set(after) == set(Table.metadata.tables)
    with writing(any_former) as session:
        assert [job.id for job in list_jobs(session)] == [1, 2, 3, 4, 5]
        assert add_job(session) > 5


def test_a_converted_store_has_the_constraints_of_a_new_one(
    any_former: sa.Engine, empty: sa.Engine
) -> None:
    convert(any_former)
    upgrade(empty)
    # `pg_dump` writes the text of a CHECK in another way.
    converted, new = (
        {one[:2] if str(one[1]).startswith("ck_") else one for one in constraints(engine)}
        for engine in (any_former, empty)
    )
    assert converted == new


def test_pieces_of_converted_stores_go_with_their_bundle(any_former: sa.Engine) -> None:
    convert(any_former)
    with writing(any_former) as session:
        session.add(BundleRow(sha256="cd", byte_count=1, piece_count=1, added_at=NOW))
        session.flush()
        session.add(BundlePieceRow(sha256="cd", number=0, content=b"1"))
        session.flush()
        session.execute(sa.delete(BundleRow))
    assert contents(any_former)["script_bundle_pieces"] == []


def test_a_converted_store_is_left_as_it_is(former: sa.Engine) -> None:
    convert(former)
    before = contents(former)
    assert not convert(former)
    assert contents(former) == before


def test_converted_jobs_are_of_the_cells_that_new_ones_are_of(former: sa.Engine) -> None:
    convert(former)
    with reading(former) as session:
        jobs = {job.id: job for job in session.scalars(sa.select(JobRow))}
    unreadable = jobs.pop(4)
    for job in jobs.values():
        assert job.cell_hash == from_json(JobSpec, job.spec).cell_hash
    assert jobs[1].cell_hash == jobs[2].cell_hash != jobs[3].cell_hash
    assert unreadable.cell_hash == "c" * 64


def test_a_converted_sweep_names_what_it_left_out_as_sweep_files_do(former: sa.Engine) -> None:
    line = "case[1]: world_size=2 {}: one_way_delay_s=0.02: needs netem"
    written = line.format("one_way_delay_s=0.02 bandwidth_bytes_per_s=1250000.0")
    with former.begin() as connection:
        change = sa.text("UPDATE sweeps SET skipped = :lines")
        connection.execute(change, {"lines": json.dumps(["x", written])})
    convert(former)
    with reading(former) as session:
        [sweep] = session.scalars(sa.select(SweepRow))
    assert sweep.skipped == ["x", line.format("one_way_delay_ms=20 bandwidth_mbit_per_s=10")]


def test_a_converted_flag_has_its_value_beside_the_message(former: sa.Engine) -> None:
    convert(former)
    with reading(former) as session:
        flags = session.scalars(sa.text("SELECT flags FROM measurements ORDER BY id")).all()
    values = [[flag.get("value") for flag in _json(of_one)] for of_one in flags]
    assert values == [[], [pytest.approx(0.12)], [3.5e6, None]]


def test_a_converted_agent_says_that_it_has_tensorflow(former: sa.Engine) -> None:
    convert(former)
    with reading(former) as session:
        facts = session.scalars(sa.text("SELECT facts FROM agents")).all()
    assert [_json(of_one)["capabilities"] for of_one in facts] == [["network", TENSORFLOW]] * 2


def test_a_store_that_is_too_old_is_not_converted(former: sa.Engine) -> None:
    before = contents(former)
    for revision in set(FORMER_REVISIONS) - set(CONVERTIBLE_REVISIONS):
        become(former, revision)
        with pytest.raises(FarmError, match=f"has schema {revision}, expected {FORMER_REVISION}"):
            convert(former)
    assert contents(former) == before


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        ("DROP TABLE kept_answers", "table kept_answers is missing"),
        ("ALTER TABLE ranks DROP COLUMN control_s", "column control_s of table ranks is missing"),
        (
            "ALTER TABLE jobs ADD COLUMN colour INTEGER",
            "column colour of table jobs is not expected",
        ),
        ("DROP INDEX ix_jobs_progress", "index ix_jobs_progress of table jobs is missing"),
        (
            "ALTER TABLE jobs RENAME COLUMN requires TO needs",
            "column requires of table jobs is missing; column needs of table jobs is not expected",
        ),
        ("ALTER TABLE jobs DROP COLUMN rank_count", ".*column.*rank_count.*"),
    ],
)
def test_a_store_whose_tables_are_not_those_of_its_revision_is_not_converted(
    former: sa.Engine, statement: str, difference: str
) -> None:
    with former.begin() as connection:
        connection.execute(sa.text(statement))
    before = contents(former)
    with pytest.raises(FarmError, match=f"but differs from it: {difference}: change") as error:
        convert(former)
    assert "\n" not in str(error.value)
    assert contents(former) == before
    with pytest.raises(Unreachable, match=f"has schema {FORMER_REVISION}"):
        check_schema(former)


def test_a_store_whose_revision_promises_bundles_must_have_them(former: sa.Engine) -> None:
    become(former, "script_bundles")
    with pytest.raises(FarmError, match=r"table script_bundles is missing; .* is missing: "):
        convert(former)


def test_tables_of_others_in_the_database_do_not_matter(former: sa.Engine) -> None:
    with former.begin() as connection:
        connection.execute(sa.text("CREATE TABLE somebodys (id INTEGER)"))
    assert convert(former)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("sweeps", "skipped", '["case[0]: one_way_delay_s=fast world_size=2: needs netem"]'),
        ("sweeps", "skipped", "[3]"),
        ("measurements", "flags", "null"),
        ("agents", "facts", "[]"),
        ("agents", "facts", "{}"),
    ],
)
def test_a_value_that_cannot_be_converted_is_named_and_nothing_changes(
    former: sa.Engine, table: str, column: str, value: str
) -> None:
    with former.begin() as connection:
        connection.execute(sa.text(f"UPDATE {table} SET {column} = :value"), {"value": value})
    before = contents(former)
    with pytest.raises(FarmError, match=f"^column {column} of table {table} has a value") as error:
        convert(former)
    assert "\n" not in str(error.value)
    assert contents(former) == before
    with pytest.raises(Unreachable, match=f"has schema {FORMER_REVISION}"):
        check_schema(former)


@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize(
    ("table", "column"), [("jobs", "spec"), ("sweeps", "skipped"), ("agents", "facts")]
)
def test_a_value_that_is_no_json_is_named(former: sa.Engine, table: str, column: str) -> None:
    with former.begin() as connection:
        connection.execute(sa.text(f"UPDATE {table} SET {column} = 'not JSON'"))
    with pytest.raises(FarmError, match=f"^column {column} of table {table} has a value"):
        convert(former)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_conversion_without_room_says_so_and_not_that_tables_differ(
    empty_engine: sa.Engine,
) -> None:
    make_former_store(empty_engine, revision="first_release")
    before = contents(empty_engine)
    with empty_engine.connect() as connection:
        page_count = connection.scalar(sa.text("PRAGMA page_count"))
    empty_engine.dispose()

    @sa.event.listens_for(empty_engine, "connect")
    def fill(connection: Any, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {page_count}")

    with pytest.raises(Unreachable, match="is full"):
        convert(empty_engine)
    assert contents(empty_engine) == before


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_an_account_that_owns_no_tables_is_told_so_and_not_that_tables_differ(
    former: sa.Engine,
) -> None:
    name = f"poor_{uuid.uuid4().hex}"
    with former.begin() as connection:
        connection.execute(sa.text(f"CREATE ROLE {name} LOGIN PASSWORD 'hush'"))
        connection.execute(sa.text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"))
    poor = make_engine(
        former.url.set(username=name, password="hush").render_as_string(hide_password=False)
    )
    try:
        with pytest.raises(Unreachable, match="cannot be used: permission denied"):
            convert(poor)
    finally:
        poor.dispose()
        with former.begin() as connection:
            connection.execute(sa.text(f"DROP OWNED BY {name}"))
            connection.execute(sa.text(f"DROP ROLE {name}"))


def test_only_a_store_is_converted(empty_engine: sa.Engine) -> None:
    with pytest.raises(Unreachable, match="has no schema to convert: run `farm db upgrade`"):
        convert(empty_engine)
    upgrade(empty_engine)
    assert not convert(empty_engine)
    become(empty_engine, "9999")
    with pytest.raises(Unreachable, match="9999, which this benchfarm does not know"):
        convert(empty_engine)


@pytest.mark.parametrize("revision", CONVERTIBLE_REVISIONS)
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_former_backup_is_restored_and_its_file_stays_as_it_is(
    empty_engine: sa.Engine, empty: sa.Engine, revision: str, tmp_path: Path
) -> None:
    file = tmp_path / "farm.backup"
    make_former_store(empty_engine, revision=revision)
    rows = contents(empty_engine)
    empty_engine.dispose()
    shutil.copyfile(str(empty_engine.url.database), file)
    before = file.read_bytes()
    restore(file, empty, now=NOW, progress=lambda done, total: None)

    check_schema(empty)
    restored = contents(empty)
    for name, of_one in rows.items():
        assert len(restored[name]) == len(of_one), name
    assert file.read_bytes() == before


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_former_backup_that_is_too_old_is_refused_by_its_name(
    former: sa.Engine, empty: sa.Engine
) -> None:
    become(former, "0009")
    former.dispose()
    file = Path(str(former.url.database))
    with pytest.raises(FarmError, match=f"^{file} has schema 0009, expected {FORMER_REVISION}"):
        restore(file, empty, now=NOW, progress=lambda done, total: None)
    assert sa.inspect(empty).get_table_names() == []


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_former_dump_is_converted_where_it_was_restored(
    former: sa.Engine, empty: sa.Engine, tmp_path: Path
) -> None:
    run("pg_dump", "--format=custom", f"--file={tmp_path / 'farm.dump'}", libpq(former))
    options = ("--no-owner", "--exit-on-error", "--single-transaction")
    run("pg_restore", *options, f"--dbname={libpq(empty)}", str(tmp_path / "farm.dump"))
    assert convert(empty)
    check_schema(empty)
    convert(former)
    assert contents(empty) == contents(former)


@pytest.mark.parametrize("command", ["db check", "db upgrade", "db backup x", "status", "up"])
def test_commands_refuse_a_former_store_in_one_line(command: str, shell: FarmCommand) -> None:
    line = shell.refusal(*command.split(), status=1)
    assert re.search(rf"has schema {FORMER_REVISION} .*: run `farm db convert` while", line)


def test_the_command_converts_once_and_then_the_others_work(shell: FarmCommand) -> None:
    assert shell.text("db", "convert").endswith(" is converted\n")
    assert shell.text("db", "convert").endswith(" needs no conversion\n")
    assert "has the schema of this program" in shell.text("db", "check")
    assert "has the schema of this program" in shell.text("db", "upgrade")
    assert shell.json("status")["sweeps"][0]["name"] == "old"
    checks = json.loads(shell.run("doctor", "--json").stdout)["checks"]
    assert [check["level"] for check in checks if check["name"] == "database"] == ["well"]
