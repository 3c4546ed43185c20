"""What the scheduler sends to a tracker by itself."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.embedded.redis import free_port
from farm.errors import InvalidSpec
from farm.settings.server import load_settings
from farm.store.engine import reading, writing
from farm.store.tables import TrackerCursor
from farm.store.tracker_cursors import MOST_TRIES, claim_cursor, given_up
from farm.trackers.sending import TrackerExport
from tests.commands.farm_command import FarmCommand
from tests.stored.tracked_sweep import add_tracked_sweep

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")


def follower(engine: sa.Engine, tracker: str) -> TrackerExport:
    url = engine.url.render_as_string(hide_password=False)
    return TrackerExport(engine, database_url=url, tracker=tracker)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*/*/events.*"))


def cursor(engine: sa.Engine, tracker: str = "tensorboard") -> TrackerCursor:
    with reading(engine) as session:
        return session.get_one(TrackerCursor, tracker)


def make_due(engine: sa.Engine, tracker: str = "tensorboard") -> None:
    """Let the pause after a failure be over."""
    with writing(engine) as session:
        session.get_one(TrackerCursor, tracker).due_at = dt.datetime.now(dt.UTC)


def test_jobs_are_sent_once_they_are_measured(engine: sa.Engine, tmp_path: Path) -> None:
    one = follower(engine, f"tensorboard {tmp_path / 'a folder'}")
    one.turn()
    add_tracked_sweep(engine)
    one.turn()
    assert len(files(tmp_path / "a folder")) == 2
    assert (len(cursor(engine).sent_tokens), cursor(engine).trouble) == (2, None)


def test_what_was_measured_before_is_left_to_farm_export(engine: sa.Engine, tmp_path: Path) -> None:
    add_tracked_sweep(engine)
    one = follower(engine, f"tensorboard {tmp_path / 'events'}")
    one.turn()
    one.turn()
    assert files(tmp_path / "events") == []


def test_a_tracker_that_refuses_is_left_alone_for_a_while_and_then_tried_again(
    engine: sa.Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    folder.write_text("")
    one = follower(engine, f"tensorboard {folder}")
    one.turn()
    add_tracked_sweep(engine)
    one.turn()
    assert "cannot be made" in (cursor(engine).trouble or "")
    assert cursor(engine).due_at > dt.datetime.now(dt.UTC)

    folder.unlink()
    one.turn()
    assert files(folder) == []
    make_due(engine)
    one.turn()
    assert len(files(folder)) == 2
    assert cursor(engine).trouble is None


def test_jobs_that_are_refused_each_time_are_given_up(engine: sa.Engine, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.write_text("")
    one = follower(engine, f"tensorboard {folder}")
    one.turn()
    add_tracked_sweep(engine)
    for _ in range(MOST_TRIES):
        make_due(engine)
        one.turn()
    assert len(given_up(cursor(engine))) == 2
    assert cursor(engine).failure_count == MOST_TRIES

    folder.unlink()
    make_due(engine)
    one.turn()
    assert files(folder) == []


def test_a_tracker_that_is_away_costs_no_job_its_tries(
    engine: sa.Engine, farm: FarmCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = f"mlflow http://me:secret@127.0.0.1:{free_port()}"
    one = follower(engine, tracker)
    one.turn()
    add_tracked_sweep(engine)
    one.turn()
    found = cursor(engine, "mlflow")
    assert found.tries == {}
    assert "does not do as asked" in (found.trouble or "")
    assert "secret" not in (found.trouble or "")

    monkeypatch.setenv("FARM_TRACKER", tracker)
    checks = json.loads(farm.run("doctor", "--json").stdout)["checks"]
    [check] = [one for one in checks if one["name"] == "tracker"]
    assert check["level"] == "doubt"
    assert check["findings"][0]["what"].startswith("sending to mlflow fails: MLflow at http://127")
    assert "secret" not in str(check)


def test_only_one_of_two_schedulers_sends(engine: sa.Engine, tmp_path: Path) -> None:
    one = follower(engine, f"tensorboard {tmp_path / 'events'}")
    one.turn()
    add_tracked_sweep(engine)
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        assert claim_cursor(session, "tensorboard", now=now, claim=dt.timedelta(minutes=1))
    one.turn()
    assert files(tmp_path / "events") == []


@pytest.mark.parametrize("text", ["mlflow", "comet http://a", "mlflow:http://a:secret@b", "x" * 99])
def test_a_tracker_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="FARM_TRACKER: expected one of mlflow") as raised:
        load_settings({"FARM_TRACKER": text})
    assert "secret" not in str(raised.value)


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)
