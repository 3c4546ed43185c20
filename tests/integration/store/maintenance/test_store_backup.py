"""Backups: of one moment, whole or not there, and restored so that agents that lived on obey."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.errors import FarmError, Unreachable
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.reports import Sample
from farm.store.agents.heartbeats import record_heartbeats
from farm.store.engine import make_engine, reading, writing
from farm.store.gangs.leases import latest_token
from farm.store.maintenance.backup import back_up, restore
from farm.store.maintenance.copy import CopiedTable
from farm.store.schema import check_schema
from farm.store.tables import AgentRow
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts
from tests.integration.conftest import new_database
from tests.services.postgres_programs import binary_folder
from tests.stored.stored_series import insert_samples

LATER = NOW + dt.timedelta(hours=1)


@pytest.fixture
def target(request: pytest.FixtureRequest, database_kind: str) -> Iterator[sa.Engine]:
    """An empty database of the other kind."""
    kind = "postgresql" if database_kind == "sqlite" else "sqlite"
    with new_database(request, kind, is_migrated=False) as url:
        engine = make_engine(url)
        yield engine
        engine.dispose()


def fill(engine: sa.Engine) -> int:
    """A farm in the middle of an attempt, whose token is returned."""
    with writing(engine) as session:
        for agent_id in ("vm-1", "vm-2"):
            add_agent(session, agent_id, heartbeat_at=NOW)
        token = add_attempt(session, add_job(session), ["vm-1", "vm-2"])
        samples = [Sample(tick=tick) for tick in range(20)]
        insert_samples(session, day=NOW.date(), token=token, rank=0, samples=samples)
    return token


def save(engine: sa.Engine, file: Path) -> list[CopiedTable]:
    return back_up(engine, file, now=LATER, progress=lambda done, total: None)


def load(file: Path, engine: sa.Engine) -> list[CopiedTable]:
    return restore(file, engine, now=LATER, progress=lambda done, total: None)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_backup_is_one_file_that_only_its_owner_reads(engine: sa.Engine, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    save(engine, folder / "farm.backup")

    assert [path.name for path in folder.iterdir()] == ["farm.backup"]
    assert stat.S_IMODE((folder / "farm.backup").stat().st_mode) == 0o600
    with closing(sqlite3.connect(folder / "farm.backup")) as connection:
        # Nothing beside the file was ever a part of it.
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.root
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_disk_that_fills_while_the_log_is_taken_in_makes_no_backup(
    engine: sa.Engine, tmp_path: Path
) -> None:
    """All rows fit once, in the write-ahead log, and not a second time, in the file."""
    token = fill(engine)
    with writing(engine) as session:
        samples = [Sample(tick=tick) for tick in range(40_000)]
        insert_samples(session, day=NOW.date(), token=token, rank=1, samples=samples)
    save(engine, tmp_path / "whole")
    folder = tmp_path / "small"
    folder.mkdir()
    size = f"size={(tmp_path / 'whole').stat().st_size * 3 // 2}"
    mount = ("mount", "-t", "tmpfs", "-o", size, "none", str(folder))
    if subprocess.run(mount, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(FarmError, match="disk is full"):
            save(engine, folder / "farm.backup")
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", str(folder)], timeout=60, check=True)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_backup_never_replaces_another(engine: sa.Engine, tmp_path: Path) -> None:
    (tmp_path / "farm.backup").write_text("the one of yesterday")

    with pytest.raises(FarmError, match="is there already"):
        save(engine, tmp_path / "farm.backup")
    assert (tmp_path / "farm.backup").read_text() == "the one of yesterday"


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_of_two_backups_at_once_to_one_name_the_first_stays(
    engine: sa.Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    file = folder / "farm.backup"

    def someone_is_first(done: int, total: int) -> None:
        file.write_text("somebody else's")

    with pytest.raises(FarmError, match="is there already"):
        back_up(engine, file, now=LATER, progress=someone_is_first)
    assert file.read_text() == "somebody else's"
    assert list(folder.iterdir()) == [file]


@pytest.mark.root
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_restore_whose_copy_does_not_fit_says_where_it_needs_room(
    engine: sa.Engine, target: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(engine, tmp_path / "farm.backup")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder))
    if subprocess.run(mount, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        with pytest.raises(FarmError, match=f"^{folder}: expected room for a copy .* TMPDIR$"):
            load(tmp_path / "farm.backup", target)
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", str(folder)], timeout=60, check=True)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_backup_that_fails_leaves_nothing(empty_engine: sa.Engine, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    with pytest.raises(Unreachable, match="has schema none"):
        save(empty_engine, folder / "farm.backup")
    with pytest.raises(FarmError, match="cannot be written: No such file"):
        save(empty_engine, tmp_path / "nowhere" / "farm.backup")
    assert list(folder.iterdir()) == []


def test_a_backup_of_a_store_that_is_written_to_is_of_one_moment(
    engine: sa.Engine, target: sa.Engine, tmp_path: Path
) -> None:
    """Each transaction of the writer adds a job, its attempt and ten samples, or none of them."""
    fill(engine)
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            with writing(engine) as session:
                token = add_attempt(session, add_job(session), ["vm-1"])
                rows = [Sample(tick=tick) for tick in range(10)]
                insert_samples(session, day=NOW.date(), token=token, rank=0, samples=rows)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while latest_in(engine) < 5:
            assert writer.is_alive()
        saved = save(engine, tmp_path / "farm.backup")
    finally:
        is_over.set()
        writer.join()
    counts = {table.name: table.row_count for table in saved}

    assert counts["jobs"] == counts["attempts"] >= 5
    assert counts["samples"] == 10 * (counts["attempts"] + 1)
    assert load(tmp_path / "farm.backup", target) == saved


def latest_in(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return latest_token(session)


def test_a_restored_store_gives_no_token_that_an_agent_may_know(
    engine: sa.Engine, target: sa.Engine, tmp_path: Path
) -> None:
    """Reports of a lost attempt would count for the one that got its token a second time."""
    fill(engine)
    save(engine, tmp_path / "farm.backup")
    with writing(engine) as session:
        lost = [add_attempt(session, add_job(session), ["vm-1"]) for _ in range(3)]
    load(tmp_path / "farm.backup", target)

    with reading(target) as session:
        assert [agent.heartbeat_at for agent in session.scalars(sa.select(AgentRow))] == [
            None,
            None,
        ]
    with writing(target) as session:
        assert add_attempt(session, add_job(session), ["vm-2"]) > max(lost)
        # Were it not enough, an agent that beats says so.
        seen = latest_token(session) + 7
        record_heartbeats(session, [beat(seen)], now=LATER, lease=dt.timedelta(seconds=20))
        assert add_attempt(session, add_job(session), ["vm-1"]) > seen


def beat(highest_token: int) -> Heartbeat:
    return Heartbeat(
        agent_id="vm-1",
        boot_id="boot",
        counter=100,
        state=AgentState.IDLE,
        serving_token=None,
        highest_token=highest_token,
        agent_time_s=LATER.timestamp(),
        echo=BeatEcho(server_time_s=LATER.timestamp(), elapsed_s=0.0),
        facts=agent_facts(),
    )


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_is_no_backup_is_refused_by_its_name_and_changes_nothing(
    engine: sa.Engine, target: sa.Engine, tmp_path: Path
) -> None:
    fill(engine)
    save(engine, tmp_path / "farm.backup")
    whole = (tmp_path / "farm.backup").read_bytes()
    for name, content, reason in (
        ("text", b"no database at all, but a text that is rather long " * 20, "not a database"),
        ("empty", b"", "holds no store"),
        ("begun", whole[:100], "malformed"),
        ("half", whole[: len(whole) // 2], "malformed"),
        ("overwritten", whole[:-4096] + b"x" * 4096, "Page"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FarmError, match=f"^{tmp_path / name} .*{reason}") as error:
            load(tmp_path / name, target)
        assert "\n" not in str(error.value)

    with pytest.raises(FarmError, match="cannot be read: No such file"):
        load(tmp_path / "missing", target)
    assert sa.inspect(target).get_table_names() == []
    load(tmp_path / "farm.backup", target)
    with pytest.raises(FarmError, match="has rows: expected an empty store"):
        load(tmp_path / "farm.backup", target)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_store_that_was_killed_is_restored_with_the_log_beside_it(
    engine: sa.Engine, target: sa.Engine, tmp_path: Path
) -> None:
    fill(engine)  # and all of it is in the write-ahead log, since the engine is open
    file = Path(str(engine.url.database))
    for name in (file.name, f"{file.name}-wal"):
        shutil.copy(file.parent / name, tmp_path / name)
    load(tmp_path / file.name, target)
    with reading(target) as session:
        assert session.scalars(sa.select(AgentRow.id)).all() == ["vm-1", "vm-2"]


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_what_pg_dump_wrote_is_the_same_store_when_pg_restore_has_read_it(
    engine: sa.Engine, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As docs/operations.md has it, on PostgreSQL's own partitions, sequences and all."""
    fill(engine)
    with new_database(request, "postgresql", is_migrated=False) as url:
        new = make_engine(url)
        run("pg_dump", "--format=custom", f"--file={tmp_path / 'farm.dump'}", libpq(engine))
        options = ("--no-owner", "--exit-on-error", "--single-transaction")
        run("pg_restore", *options, f"--dbname={libpq(new)}", str(tmp_path / "farm.dump"))
        check_schema(new)
        old_saved, new_saved = save(engine, tmp_path / "old"), save(new, tmp_path / "new")
        last = latest_in(new)
        new.dispose()

    assert new_saved == old_saved
    assert last == latest_in(engine)


def run(program: str, *arguments: str) -> None:
    command = [str(binary_folder() / program), *arguments]
    subprocess.run(command, capture_output=True, timeout=120, check=True)


def libpq(engine: sa.Engine) -> str:
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
