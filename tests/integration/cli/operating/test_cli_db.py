"""`farm db` on a real store: prune asks before it deletes, copy says what it copied."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select

from farm.broker.celery_app import agent_queue
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import Sample
from farm.store.engine import make_engine, reading, writing
from farm.store.maintenance.partitions import missing_days
from farm.store.result_tables import SampleRow
from farm.store.tables import AttemptRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_job
from tests.integration.conftest import new_database
from tests.services.redis_server import RedisServer
from tests.stored.stored_series import insert_samples


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def aged(engine: sa.Engine) -> None:
    """Samples of 400, 40 and 4 days ago, twenty each."""
    now = dt.datetime.now(dt.UTC)
    for days_ago in (400, 40, 4):
        with writing(engine) as session:
            token = add_attempt(session, add_job(session), state=AttemptState.SUCCEEDED)
            leased_at = now - dt.timedelta(days=days_ago)
            session.get_one(AttemptRow, token).leased_at = leased_at
            samples = [Sample(tick=tick) for tick in range(20)]
            insert_samples(session, day=leased_at.date(), token=token, rank=0, samples=samples)


def sample_count(engine: sa.Engine) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(SampleRow)) or 0


@pytest.mark.usefixtures("aged")
def test_prune_without_options_only_says_what_the_defaults_would_do(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    shown = farm.text("db", "prune")
    assert "would be dropped:\n  20 samples" in shown
    assert "would be thinned to a row for 10 s: 18 samples fewer" in shown
    assert "--thin-to 20s" in farm.text("db", "prune", "--thin-to", "20s")
    command = shown.splitlines()[-1].partition("To do it: farm ")[2]
    assert sample_count(engine) == 60
    farm.text(*command.split())
    assert sample_count(engine) == 22


@pytest.mark.usefixtures("aged")
def test_prune_does_only_what_was_asked_for(farm: FarmCommand, engine: sa.Engine) -> None:
    answer = farm.json("db", "prune", "--thin-after", "30d", "--thin-to", "20s", "--dry-run")
    assert (answer["is_done"], answer["thinned_sample_count"]) == (False, 38)
    assert sample_count(engine) == 60
    answer = farm.json("db", "prune", "--thin-after", "30d", "--thin-to", "20s")
    assert (answer["is_done"], answer["dropped_sample_count"]) == (True, 0)
    assert sample_count(engine) == 22


def test_prune_refuses_to_thin_what_is_dropped_first(farm: FarmCommand) -> None:
    line = farm.refusal("db", "prune", "--thin-after", "9d", "--drop-after", "9d", status=2)
    assert line == "farm: --thin-after: expected less than --drop-after 9d, got '9d'\n"


def test_prune_empties_the_queues_of_agents_that_fell_silent_long_ago(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        for agent_id, days_ago in (("dead", 10), ("alive", 0)):
            add_agent(session, agent_id, heartbeat_at=now - dt.timedelta(days=days_ago))
    server = RedisServer(tmp_path)
    server.start()
    monkeypatch.setenv("FARM_BROKER_URL", server.url)
    try:
        assert "no agent has been silent for 11 days" in farm.text(
            "db", "prune", "--queues-after", "11d"
        )
        with server.client() as client:
            for agent_id in ("dead", "alive"):
                client.rpush(agent_queue(agent_id), "a command", "another")
            answer = farm.json("db", "prune", "--queues-after", "7d")
            assert (answer["silent_agents"], answer["purged_message_count"]) == (["dead"], 2)
            assert client.keys("agent.*") == [agent_queue("alive")]
    finally:
        server.kill()


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_copy_tells_what_it_copied_and_refuses_to_do_it_twice(
    farm: FarmCommand, engine: sa.Engine, request: pytest.FixtureRequest, target: str
) -> None:
    with new_database(request, target, is_migrated=False) as url:
        answer = farm.json("db", "copy", "--to", url)
        counts = {table["name"]: table["row_count"] for table in answer["tables"]}
        assert (counts["samples"], counts["attempts"], counts["agents"]) == (60, 3, 0)
        copied = make_engine(url)
        assert sample_count(copied) == 60
        copied.dispose()
        line = farm.refusal("db", "copy", "--to", url, status=1)
        assert "table samples of" in line


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_copy_names_the_option_that_is_no_database(
    farm: FarmCommand, tmp_path: Path, option: str
) -> None:
    urls = {"--to": f"sqlite:///{tmp_path}/new.db", option: "mysql://farm:hush@db/farm"}
    arguments = [word for pair in urls.items() for word in pair]
    line = farm.refusal("db", "copy", *arguments, status=2)
    assert line.startswith(f"farm: {option}: expected sqlite:///FILE")
    assert "hush" not in line


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_an_account_that_may_not_make_tables_is_told_so_in_one_line(
    farm: FarmCommand, engine: sa.Engine, request: pytest.FixtureRequest
) -> None:
    with new_database(request, "postgresql", is_migrated=False) as url:
        target = make_engine(url)
        name = f"poor_{uuid.uuid4().hex}"
        with target.begin() as connection:
            connection.execute(sa.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
            connection.execute(sa.text(f"CREATE ROLE {name} LOGIN PASSWORD 'hush'"))
        try:
            poor = target.url.set(username=name, password="hush")
            shown = poor.render_as_string(hide_password=False)
            line = farm.refusal("db", "copy", "--to", shown, status=1)
        finally:
            with target.begin() as connection:
                connection.execute(sa.text(f"DROP ROLE {name}"))
            target.dispose()
        assert "cannot be used: permission denied for schema public" in line
        assert "hush" not in line


def test_check_names_what_a_restore_that_was_broken_off_left_out(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        session.execute(sa.text("CREATE INDEX ix_somebodys ON jobs (id, sweep_id)"))
    assert "has the schema of this program" in farm.text("db", "check")
    with writing(engine) as session:
        session.execute(sa.text("DROP TABLE kept_answers"))
        session.execute(sa.text("DROP INDEX ix_jobs_progress"))
    line = farm.refusal("db", "check", status=1)
    assert "table kept_answers is missing; index ix_jobs_progress of table jobs is missing" in line
    assert "restore a backup" in line


def test_copy_from_a_file_that_is_not_there_makes_none(farm: FarmCommand, tmp_path: Path) -> None:
    source, target = tmp_path / "no.db", tmp_path / "new.db"
    line = farm.refusal(
        "db", "copy", "--from", f"sqlite:///{source}", "--to", f"sqlite:///{target}", status=1
    )
    assert "there is no store in" in line
    assert line.endswith("or correct --from\n")
    assert not source.exists()
    assert not target.exists()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_upgrade_makes_the_partitions_of_the_days_to_come(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    farm.text("db", "upgrade")
    assert missing_days(engine, today=dt.datetime.now(dt.UTC).date()) == []
