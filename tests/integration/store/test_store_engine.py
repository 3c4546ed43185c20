from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from farm.errors import InvalidSpec, Unreachable
from farm.store.engine import make_engine, reading, redacted, writing
from farm.store.schema import check_schema, upgrade
from farm.store.tables import SweepRow
from tests.factories import NOW, add_sweep, job_spec


def test_a_writing_block_commits_at_its_end(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session)
    assert _sweep_count(engine) == 1


def test_a_writing_block_that_fails_leaves_nothing(engine: sa.Engine) -> None:
    def fail() -> None:
        with writing(engine) as session:
            add_sweep(session)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert _sweep_count(engine) == 0


def test_a_reading_block_cannot_write(engine: sa.Engine) -> None:
    with pytest.raises(DBAPIError), reading(engine) as session:
        add_sweep(session)
    with writing(engine) as session:  # on the same pooled connection
        add_sweep(session)
    assert _sweep_count(engine) == 1


def test_a_reading_block_sees_one_snapshot(engine: sa.Engine) -> None:
    with reading(engine) as session:
        before = session.scalars(sa.select(SweepRow.id)).all()
        with writing(engine) as other:
            add_sweep(other)
        assert session.scalars(sa.select(SweepRow.id)).all() == before
    assert _sweep_count(engine) == 1


def test_what_was_loaded_stays_readable_after_the_block(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep = SweepRow(name="s", spec={}, skipped=[], created_at=NOW)
        session.add(sweep)
    assert sweep.name == "s"
    with reading(engine) as session:
        loaded = session.scalars(sa.select(SweepRow)).one()
    assert loaded.name == "s"


def test_an_error_shows_no_value_of_its_statement(engine: sa.Engine) -> None:
    statement = sa.text("SELECT nothing FROM nowhere WHERE secret = :secret")
    with pytest.raises(DBAPIError, match="nowhere") as raised, reading(engine) as session:
        session.execute(statement, {"secret": "s3cret"})
    assert "s3cret" not in str(raised.value)


def test_a_savepoint_undoes_only_itself(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session)
        savepoint = session.begin_nested()
        add_sweep(session)
        savepoint.rollback()
    assert _sweep_count(engine) == 1


@pytest.mark.parametrize(
    "url",
    [
        "farm.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://farm:hush@db/farm",
        "postgresql+psycopg2://farm:hush@db/farm",
        "postgresql://farm:hush@db:port/farm",
    ],
)
def test_a_url_of_no_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSpec, match="FARM_DATABASE_URL: expected sqlite:///FILE") as caught:
        make_engine(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://farm:hush@db/farm",
        "postgresql://farm:hu@hush@db/farm",
        "postgresql://farm:hu/hush@db/farm",
        "postgresql://farm@db/farm?password=hush",
    ],
)
def test_no_password_is_ever_shown(url: str) -> None:
    assert "hush" not in redacted(url)
    assert "db/farm" in redacted(url)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_database_that_does_not_answer_is_one_line(scheme: str) -> None:
    engine = make_engine(f"{scheme}://farm:hush@127.0.0.1:1/farm")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1/farm cannot be used") as caught:
        _sweep_count(engine)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)
    engine.dispose()


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "farm.db").write_text("Dear diary, today I was not a database. " * 100)
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    with pytest.raises(Unreachable, match="not a database"):
        _sweep_count(engine)
    engine.dispose()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unreachable, match="cannot be used"):
        make_engine(f"sqlite:///{tmp_path}/file/farm.db")


def _sweep_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) or 0


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_connection_that_breaks_in_the_middle_is_unreachable_and_then_mended(
    engine: sa.Engine,
) -> None:
    kill = sa.text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(Unreachable, match="cannot be used"), writing(engine) as session:
        session.execute(kill)
    assert _sweep_count(engine) == 0


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_database_that_was_restarted_meanwhile_is_not_one_that_is_away(
    engine: sa.Engine,
) -> None:
    assert _sweep_count(engine) == 0
    _end_other_backends(engine)
    assert _sweep_count(engine) == 0


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_who_repeats_what_failed_asks_only_connections_that_rested(
    engine: sa.Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _repeated(database_url, trusted_s=3600.0) as repeated:
        pings = _noted_pings(repeated, monkeypatch)
        for _ in range(3):
            assert _sweep_count(repeated) == 0
        assert pings == []
        _end_other_backends(engine)
        with pytest.raises(Unreachable, match="cannot be used"):
            _sweep_count(repeated)
        assert _sweep_count(repeated) == 0
    with _repeated(database_url, trusted_s=0.0) as repeated:
        pings = _noted_pings(repeated, monkeypatch)
        assert _sweep_count(repeated) == 0
        _end_other_backends(engine)
        assert _sweep_count(repeated) == 0
        assert len(pings) == 1


@contextmanager
def _repeated(url: str, *, trusted_s: float) -> Iterator[sa.Engine]:
    engine = make_engine(url, trusted_s=trusted_s)
    try:
        yield engine
    finally:
        engine.dispose()


def _noted_pings(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what will hold every connection that is asked whether it is there."""
    pings: list[object] = []
    ping = engine.dialect.do_ping

    def noted(connection: Any) -> bool:
        pings.append(connection)
        return ping(connection)

    monkeypatch.setattr(engine.dialect, "do_ping", noted)
    return pings


def _end_other_backends(engine: sa.Engine) -> None:
    """End all that serve the engine's pool."""
    other = sa.create_engine(engine.url, poolclass=sa.NullPool)
    with other.connect() as connection:
        ended = connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
        ).all()
    assert ended


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    upgrade(engine)

    @sa.event.listens_for(engine, "connect")
    def limit(connection: sqlite3.Connection, _: object) -> None:
        # As many pages as there are now: the next one finds the disk full.
        connection.execute("PRAGMA max_page_count = 1")

    engine.dispose()
    with pytest.raises(Unreachable, match="is full"), writing(engine) as session:
        add_sweep(session, *(job_spec(seed=seed) for seed in range(1000)))
    with reading(engine) as session:
        assert session.scalars(sa.select(SweepRow)).all() == []
    engine.dispose()


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_damaged_row_is_one_line(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session)
        page = session.scalar(sa.text("SELECT rootpage FROM sqlite_master WHERE name = 'sweeps'"))
        size = session.scalar(sa.text("PRAGMA page_size"))
    engine.dispose()
    with Path(str(engine.url.database)).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"x" * size)
    with pytest.raises(Unreachable, match="malformed"):
        _sweep_count(engine)


def test_a_store_that_may_only_be_read_is_one_line(
    engine: sa.Engine, database_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "working folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if database_kind == "sqlite":
        read_only = make_engine(f"sqlite:///file:{engine.url.database}?mode=ro&uri=true")
    else:
        read_only = make_engine(engine.url.render_as_string(hide_password=False))
        setting = f"ALTER DATABASE {engine.url.database} SET default_transaction_read_only = on"
        with writing(engine) as session:
            session.execute(sa.text(setting))
    with pytest.raises(Unreachable, match=r"read-?only"), writing(read_only) as session:
        add_sweep(session)
    assert _sweep_count(read_only) == 0
    assert list(folder.iterdir()) == []  # such a URL is the name of no folder
    read_only.dispose()


def test_the_database_of_another_program_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")  # it uses Alembic too
        connection.execute("INSERT INTO alembic_version VALUES ('8f3a')")
        connection.commit()
    before = file.read_bytes()
    engine = make_engine(f"sqlite:///{file}")
    with pytest.raises(Unreachable, match="has schema 8f3a"):
        check_schema(engine)
    engine.dispose()
    assert file.read_bytes() == before
