"""`farm submit --notify` and `farm notifications`."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.store.engine import reading, writing
from farm.store.notifications import add_targets
from farm.store.tables import NotificationTarget, SweepRow
from tests.commands.farm_command import FarmCommand
from tests.integration.notifications.test_notifier import Clock, Sender, ended_sweep

SWEEP = """
name = "mine"
[[case]]
model = "mlp"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = 64
"""
LOCAL = "http://127.0.0.1:9/secret-path"


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    monkeypatch.setenv("FARM_NOTIFY_ALLOW", "127.0.0.0/8")
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    file = tmp_path / "sweep.toml"
    file.write_text(f'notify = "http://127.0.0.1:8/"\n{SWEEP}')
    return str(file)


def test_addresses_are_stored_apart_from_the_sweep(
    engine: sa.Engine, farm: FarmCommand, sweep: str
) -> None:
    submitted = farm.json("submit", sweep, "--notify", LOCAL)
    assert [one["address"] for one in submitted["notify"]] == [
        "http://127.0.0.1:8/...",
        "http://127.0.0.1:9/...",
    ]
    with reading(engine) as session:
        targets = session.scalars(sa.select(NotificationTarget)).all()
        [row] = session.scalars(sa.select(SweepRow))
    assert [target.address for target in targets] == ["http://127.0.0.1:8/", LOCAL]
    assert [target.secret for target in targets] == [one["secret"] for one in submitted["notify"]]
    assert "notify" not in row.spec
    text = farm.text("submit", sweep, "--notify", LOCAL)
    assert "messages to http://127.0.0.1:9/... are signed with whsec_" in text
    assert "secret-path" not in text


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://a.example/secret", "notify[1]: expected an address such as https://HOST/PATH"),
        ("http://10.0.0.1/secret", "10.0.0.1 is within the farm's own network"),
        ("https://me:secret@127.0.0.1/", "without a user"),
        ("nonsense", "notify[1]: expected an address"),
    ],
)
def test_an_address_that_may_not_be_reached_is_refused_before_anything_is_queued(
    engine: sa.Engine, farm: FarmCommand, sweep: str, address: str, message: str
) -> None:
    refused = farm.refusal("submit", sweep, "--notify", address, status=2)
    assert message in refused
    assert "secret" not in refused
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count(SweepRow.id))) == 0


def test_the_log_says_what_came_of_each_message(engine: sa.Engine, farm: FarmCommand) -> None:
    assert farm.text("notifications") == "no message was to be sent\n"
    ended_sweep(engine, LOCAL)
    ended_sweep(engine, name="other")
    with writing(engine) as session:
        add_targets(session, [LOCAL], ["whsec_"], sweep_id=None, now=Clock().now)
    Sender(engine, Clock(), addresses=[LOCAL]).turn()
    [of_sweep, _] = farm.json("notifications", "1")["items"]
    assert (of_sweep["type"], of_sweep["about"]) == ("sweep.finished", "sweep 1")
    assert (of_sweep["state"], of_sweep["address"]) == ("waiting", "http://127.0.0.1:9/...")
    text = farm.text("notifications")
    assert "All connection attempts failed" in text
    assert "secret" not in text
    assert farm.json("notifications", "--secrets")["items"] == [
        {"address": "http://127.0.0.1:9/...", "secret": "whsec_"}
    ]
