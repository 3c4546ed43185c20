"""The way from the first schema to today's and back, with data, and killed in the middle."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa
from alembic import command

from farm.core.lifecycle import AttemptState, JobState
from farm.errors import Unreachable
from farm.store.agents import list_agents
from farm.store.engine import make_engine, reading, writing
from farm.store.jobs import list_jobs
from farm.store.result_tables import MeasurementRow, SampleRow
from farm.store.schema import alembic_config, check_schema, downgrade, revisions, upgrade
from farm.store.tables import Attempt, Job, Sweep
from tests.oldest_store import FIRST_REVISION, contents, fill

ROOT = Path(__file__).parents[2]

# Upgrades, and stops for ever where the last migration has changed something and not yet all.
_HALFWAY = """
import sys, time
from alembic import op
from farm.store.engine import make_engine
from farm.store.schema import upgrade

def stop(*_, **__):
    print("halfway", flush=True)
    time.sleep(600)

plain = op.add_column
def add_column(table, column, **options):
    plain(table, column, **options)
    if column.name == sys.argv[2]:
        stop()
op.add_column = add_column
upgrade(make_engine(sys.argv[1]))
"""


def to_revision(engine: sa.Engine, revision: str) -> None:
    """Upgrade as far as the program of that time did."""
    with writing(engine) as session:
        config = alembic_config()
        config.attributes["connection"] = session.connection()
        command.upgrade(config, revision)


@pytest.fixture
def oldest(empty_engine: sa.Engine) -> sa.Engine:
    """A store of the first schema, with rows in every table."""
    to_revision(empty_engine, FIRST_REVISION)
    with empty_engine.begin() as connection:
        fill(connection)
    return empty_engine


def seen(engine: sa.Engine) -> dict[str, list[dict[str, object]]]:
    with engine.connect() as connection:
        return contents(connection)


def test_every_table_of_the_first_schema_has_rows(oldest: sa.Engine) -> None:
    tables = {t for t in sa.inspect(oldest).get_table_names() if not t.startswith("samples_")}
    written = seen(oldest)
    assert set(written) == tables - {"alembic_version"}
    assert all(written.values())


def test_data_of_the_first_schema_survives_the_way_to_todays_and_back(oldest: sa.Engine) -> None:
    written = seen(oldest)
    upgrade(oldest)
    check_schema(oldest)
    assert seen(oldest) == written
    downgrade(oldest, FIRST_REVISION)
    assert seen(oldest) == written
    upgrade(oldest)
    check_schema(oldest)
    assert seen(oldest) == written


def test_each_step_back_keeps_the_data_too(oldest: sa.Engine) -> None:
    written = seen(oldest)
    upgrade(oldest)
    for revision in reversed(revisions()[:-1]):
        downgrade(oldest, revision)
        assert (revision, seen(oldest)) == (revision, written)


def test_todays_program_understands_what_the_first_one_wrote(oldest: sa.Engine) -> None:
    upgrade(oldest)
    with reading(oldest) as session:
        assert {job.state for job in list_jobs(session)} == set(JobState) - {JobState.LEASED}
        # Columns that came later say what the first version meant.
        assert {job.rank_count for job in session.scalars(sa.select(Job))} == {2}
        assert session.get_one(Job, 1).requires == []
        assert session.get_one(Job, 3).requires == ["network"]
        assert not session.get_one(Sweep, 1).is_paused
        assert session.get_one(Attempt, 2).state is AttemptState.RUNNING
        [first, second] = list_agents(session)
        assert (first.attempt_id, second.unclean_token) == (2, 4)
        assert (first.backlog_count, first.disk_free_bytes) == (None, None)
        assert session.scalar(sa.select(sa.func.count()).select_from(SampleRow)) == 6
        assert session.scalars(sa.select(MeasurementRow.step_time_s)).all() == [0.1]


@pytest.mark.parametrize("column", ["rank_count", "disk_free_bytes"])
def test_an_upgrade_that_is_killed_leaves_the_store_as_it_was(
    oldest: sa.Engine, database_url: str, column: str
) -> None:
    written = seen(oldest)
    command_line = [sys.executable, "-c", _HALFWAY, database_url, column]
    with subprocess.Popen(command_line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        try:
            assert killed.stdout is not None
            assert _line(killed.stdout, timeout_s=60) == "halfway\n"
        finally:
            killed.kill()
    # A server notices the lost connection at once; until then this waits for its locks.
    assert seen(oldest) == written
    with pytest.raises(Unreachable, match=rf"has schema {FIRST_REVISION}, .*farm db upgrade"):
        check_schema(oldest)
    upgrade(oldest)
    check_schema(oldest)
    assert seen(oldest) == written


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(
    oldest: sa.Engine, database_url: str
) -> None:
    written = seen(oldest)
    with oldest.begin() as connection:  # what a later migration is about to make
        connection.execute(sa.text("CREATE INDEX ix_jobs_progress ON jobs (id)"))
    with pytest.raises(sa.exc.DBAPIError, match="ix_jobs_progress"):
        upgrade(oldest)
    assert seen(oldest) == written
    again = make_engine(database_url)
    with pytest.raises(Unreachable, match=f"has schema {FIRST_REVISION}"):
        check_schema(again)
    with again.begin() as connection:
        connection.execute(sa.text("DROP INDEX ix_jobs_progress"))
    upgrade(again)
    check_schema(again)
    again.dispose()


def _line(stream: IO[str], *, timeout_s: float) -> str:
    ready, _, _ = select.select([stream], [], [], timeout_s)
    assert ready, "nothing was said in time"
    return stream.readline()
