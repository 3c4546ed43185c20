"""A farm has one store and one broker: a second of either is refused with a message."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import open_client
from farm.broker.claim import KEY, Claim, take_broker_over
from farm.broker.health_records import SCHEDULER, HealthReporter, read_health_records
from farm.errors import FarmError, OtherFarm
from farm.store.engine import make_engine
from farm.store.identity import (
    BROKER_KEPT,
    BrokerChanged,
    is_same_place,
    look_at_identity,
    note_broker,
    own_identity,
    place_of,
)
from farm.store.maintenance.backup import back_up, restore
from farm.store.maintenance.copy import copy_store
from farm.store.schema import upgrade
from tests.factories import NOW
from tests.fakes.server import wait_until
from tests.integration.conftest import new_database
from tests.services.redis_server import RedisServer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def other(request: pytest.FixtureRequest, database_kind: str) -> Iterator[sa.Engine]:
    """A second, empty database of the same kind."""
    with new_database(request, database_kind, is_migrated=False) as url:
        engine = make_engine(url)
        yield engine
        engine.dispose()


def claim(engine: sa.Engine, broker: RedisServer) -> Claim:
    made = Claim(engine, broker.url)
    made.make()
    return made


def renew(held: Claim, broker: RedisServer) -> None:
    with open_client(broker.url, timeout_s=5.0) as client:
        held.renew(client)


def nothing(done: int, total: int) -> None:
    pass


def copied(source: sa.Engine, target: sa.Engine) -> None:
    copy_store(source, target, now=NOW, is_forced=True, progress=nothing)


def test_a_second_farm_on_one_broker_is_refused(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer
) -> None:
    first = claim(engine, broker)
    upgrade(other)
    with pytest.raises(OtherFarm, match="of its own"):
        claim(other, broker)
    renew(first, broker)


def test_a_process_knows_from_its_start_whether_the_broker_is_its_own(
    engine: sa.Engine, broker: RedisServer
) -> None:
    assert Claim(engine, broker.url).make()
    broker.kill()
    assert not Claim(engine, broker.url).make()


def test_all_processes_of_a_farm_hold_one_claim(engine: sa.Engine, broker: RedisServer) -> None:
    scheduler, collector = claim(engine, broker), claim(engine, broker)
    renew(scheduler, broker)
    renew(collector, broker)


def test_a_copy_beside_its_original_is_refused(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer
) -> None:
    original = claim(engine, broker)
    copied(engine, other)
    with pytest.raises(OtherFarm, match=r"copy .* takeover"):
        claim(other, broker)
    renew(original, broker)


def test_a_copy_that_takes_over_has_the_original_refused(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer
) -> None:
    original = claim(engine, broker)
    copied(engine, other)
    take_broker_over(other, broker.url, is_forced=False)
    claim(other, broker)
    with pytest.raises(OtherFarm, match="restored or moved"):
        renew(original, broker)


def test_a_new_farm_takes_over_the_broker_of_one_that_is_gone(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer
) -> None:
    gone = claim(engine, broker)
    upgrade(other)
    take_broker_over(other, broker.url, is_forced=False)
    claim(other, broker)
    with pytest.raises(OtherFarm, match="of its own"):
        renew(gone, broker)


def test_nobody_takes_over_from_a_farm_at_work(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer
) -> None:
    health = HealthReporter(SCHEDULER, broker.url, claim=claim(engine, broker).renew)
    health.start()
    try:
        with open_client(broker.url, timeout_s=5.0) as client:
            wait_until(
                lambda: read_health_records(client) or None, "the scheduler shows that it lives"
            )
        upgrade(other)
        with pytest.raises(FarmError, match=r"scheduler on .* still uses"):
            take_broker_over(other, broker.url, is_forced=False)
        take_broker_over(other, broker.url, is_forced=True)
    finally:
        health.stop()


def test_a_restored_store_takes_over_once_its_original_has_ended(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer, tmp_path: Path
) -> None:
    original = claim(engine, broker)
    back_up(engine, tmp_path / "backup", now=NOW, progress=nothing)
    restore(tmp_path / "backup", other, now=NOW, progress=nothing)
    health = HealthReporter(SCHEDULER, broker.url, claim=original.renew)
    health.start()
    try:
        with open_client(broker.url, timeout_s=5.0) as client:
            wait_until(
                lambda: read_health_records(client) or None, "the scheduler shows that it lives"
            )
        with pytest.raises(OtherFarm, match="stop that"):
            claim(other, broker)
    finally:
        health.stop()
    claim(other, broker)
    with pytest.raises(OtherFarm, match="restored or moved"):
        renew(original, broker)


def test_a_broker_that_lost_everything_is_claimed_anew(
    engine: sa.Engine, broker: RedisServer
) -> None:
    scheduler, collector = claim(engine, broker), claim(engine, broker)
    with open_client(broker.url, timeout_s=5.0) as client:
        client.flushall()
    renew(scheduler, broker)
    renew(collector, broker)


def test_one_store_is_not_used_with_two_brokers(
    engine: sa.Engine, broker: RedisServer, tmp_path: Path
) -> None:
    held = claim(engine, broker)
    (tmp_path / "second").mkdir()
    second = RedisServer(tmp_path / "second")
    second.start()
    try:
        moved = Claim(engine, second.url)
        with pytest.raises(BrokerChanged, match="same FARM_BROKER_URL"):
            renew(moved, second)
        held.release()  # as at an orderly end
        renew(moved, second)
    finally:
        second.kill()


@pytest.mark.parametrize("away", [BROKER_KEPT + dt.timedelta(seconds=1), -dt.timedelta(hours=1)])
def test_a_broker_that_nobody_uses_any_more_is_given_up(
    engine: sa.Engine, away: dt.timedelta
) -> None:
    """Also where the clock was an hour ahead when it was used."""
    note_broker(engine, own_identity(engine), "first", former_id=None, now=NOW)
    with pytest.raises(BrokerChanged):
        note_broker(engine, own_identity(engine), "second", former_id=None, now=NOW + BROKER_KEPT)
    note_broker(engine, own_identity(engine), "second", former_id=None, now=NOW + away)


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.set(KEY, b"\xff not ours"),
        lambda client: client.set(KEY, "[" * 100_000),
        lambda client: client.rpush(KEY, "x"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_no_farm_has_written_is_refused_until_somebody_takes_over(
    engine: sa.Engine, broker: RedisServer, write: Callable[[object], None]
) -> None:
    with open_client(broker.url, timeout_s=5.0) as client:
        write(client)
    with pytest.raises(OtherFarm, match=KEY):
        claim(engine, broker)
    take_broker_over(engine, broker.url, is_forced=False)
    claim(engine, broker)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_renamed_file_is_the_same_store_and_so_is_one_put_in_its_place(
    engine: sa.Engine, tmp_path: Path
) -> None:
    place = own_identity(engine).place or ""
    engine.dispose()
    file = Path(str(engine.url.database))
    renamed = file.rename(tmp_path / "renamed.db")
    assert is_same_place(place, place_of(make_engine(f"sqlite:///{renamed}")))
    file.write_bytes(renamed.read_bytes())
    assert is_same_place(place, place_of(engine))
    elsewhere = tmp_path / "copy.db"
    elsewhere.write_bytes(renamed.read_bytes())
    assert not is_same_place(place, place_of(make_engine(f"sqlite:///{elsewhere}")))


def test_looking_makes_no_identity(engine: sa.Engine) -> None:
    assert look_at_identity(engine) is None
    made = own_identity(engine)
    assert own_identity(engine).farm_id == made.farm_id
    found = look_at_identity(engine)
    assert found is not None
    assert found.farm_id == made.farm_id


def test_who_is_refused_while_it_runs_stands_still_and_goes_on_afterwards(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.broker.health_records.EVERY_S", 0.05)
    health = HealthReporter(SCHEDULER, broker.url, claim=claim(engine, broker).renew)
    health.start()
    try:
        wait_until(lambda: health.is_ours or None, "the broker is the first farm's")
        upgrade(other)
        take_broker_over(other, broker.url, is_forced=True)
        wait_until(lambda: not health.is_ours or None, "the first farm stands still")
        with open_client(broker.url, timeout_s=5.0) as client:
            wait_until(lambda: not read_health_records(client) or None, "its health record is gone")
        take_broker_over(engine, broker.url, is_forced=True)
        wait_until(lambda: health.is_ours or None, "the first farm goes on")
    finally:
        health.stop()


@pytest.mark.parametrize("process", ["scheduler", "collector"])
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_process_of_a_second_farm_ends_with_one_line(
    engine: sa.Engine, other: sa.Engine, broker: RedisServer, tmp_path: Path, process: str
) -> None:
    claim(engine, broker)
    upgrade(other)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FARM_")},
        "FARM_HOME": str(tmp_path),
        "FARM_BROKER_URL": broker.url,
        "FARM_DATABASE_URL": other.url.render_as_string(hide_password=False),
    }
    command = [sys.executable, "-m", "farm.cli.main", "run", process]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "of its own" in line]
    assert "farm db takeover" in line
