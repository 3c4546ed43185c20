"""A migration after today's last: applied with data, taken back, and killed in the middle."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa

from farm.errors import Unreachable
from farm.gang.lifecycle import JobState
from farm.store import schema
from farm.store.engine import make_engine, writing
from farm.store.maintenance.backup import back_up, restore
from farm.store.maintenance.convert import convert
from farm.store.schema import check_schema, downgrade, upgrade
from tests.factories import NOW, add_agent, add_attempt, add_job
from tests.stored.former_store import contents, make_former_store
from tests.stored.later_migration import LATER_REVISION, add_later_migration

ROOT = Path(__file__).parents[3]
_UPGRADE = """
import sys
from pathlib import Path
from farm.store import schema
from farm.store.engine import make_engine

schema.MIGRATIONS = Path(sys.argv[2])
schema.upgrade(make_engine(sys.argv[1]))
"""


@pytest.fixture
def today(engine: sa.Engine) -> str:
    """The revision of a store with rows."""
    with writing(engine) as session:
        add_agent(session, "a1")
        add_attempt(session, add_job(session), ["a1"])
        add_job(session, state=JobState.FAILED)
    return schema.revisions()[-1]


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, today: str) -> Path:
    folder = add_later_migration(tmp_path)
    monkeypatch.setattr(schema, "MIGRATIONS", folder)
    assert schema.revisions()[-2:] == [today, LATER_REVISION]
    return folder


def colours(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.text("SELECT colour FROM jobs")))


def test_a_later_migration_keeps_the_data_and_can_be_taken_back(
    engine: sa.Engine, today: str, later: Path
) -> None:
    before = contents(engine)
    with pytest.raises(Unreachable, match=f"has schema {today}, expected {LATER_REVISION}: run"):
        check_schema(engine)
    upgrade(engine)
    check_schema(engine)
    assert colours(engine) == ["grey", "grey"]
    downgrade(engine, today)
    assert contents(engine) == before


def test_a_former_store_is_converted_and_brought_up_to_date(
    empty_engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_former_store(empty_engine)
    monkeypatch.setattr(schema, "MIGRATIONS", add_later_migration(tmp_path))
    convert(empty_engine)
    check_schema(empty_engine)
    assert set(colours(empty_engine)) == {"grey"}


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_backup_of_an_older_version_is_brought_up_to_date_and_stays_as_it_is(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, today: str
) -> None:
    file = tmp_path / "farm.backup"
    back_up(engine, file, now=NOW, progress=lambda done, total: None)
    before = file.read_bytes()
    monkeypatch.setattr(schema, "MIGRATIONS", add_later_migration(tmp_path))
    target = make_engine(f"sqlite:///{tmp_path}/restored.db")
    restore(file, target, now=NOW, progress=lambda done, total: None)

    check_schema(target)
    assert colours(target) == ["grey", "grey"]
    target.dispose()
    assert file.read_bytes() == before


def test_an_upgrade_that_is_killed_leaves_the_store_as_it_was(
    engine: sa.Engine, database_url: str, today: str, later: Path
) -> None:
    before = contents(engine)
    with subprocess.Popen(
        [sys.executable, "-c", _UPGRADE, database_url, str(later)],
        cwd=ROOT,
        env={**os.environ, "STOP_HALFWAY": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        try:
            assert killed.stdout is not None
            assert _line(killed.stdout, timeout_s=60) == "halfway\n"
        finally:
            killed.kill()
    # A server notices the lost connection at once; until then this waits for its locks.
    assert contents(engine) == before
    with pytest.raises(Unreachable, match=rf"has schema {today}, .*farm db upgrade"):
        check_schema(engine)
    upgrade(engine)
    check_schema(engine)


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(
    engine: sa.Engine, database_url: str, today: str, later: Path
) -> None:
    before = contents(engine)
    with engine.begin() as connection:  # what the migration makes last
        connection.execute(sa.text("CREATE INDEX ix_jobs_colour ON jobs (id)"))
    with pytest.raises(sa.exc.DBAPIError, match="ix_jobs_colour"):
        upgrade(engine)
    assert contents(engine) == before
    again = make_engine(database_url)
    with pytest.raises(Unreachable, match=f"has schema {today}"):
        check_schema(again)
    with again.begin() as connection:
        connection.execute(sa.text("DROP INDEX ix_jobs_colour"))
    upgrade(again)
    check_schema(again)
    again.dispose()


def _line(stream: IO[str], *, timeout_s: float) -> str:
    ready, _, _ = select.select([stream], [], [], timeout_s)
    assert ready, "nothing was said in time"
    return stream.readline()
