"""The start of the server's processes where the database is not there yet, or refuses them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.embedded.redis import free_port
from farm.errors import Unreachable
from farm.store import schema
from farm.store.engine import make_engine
from farm.store.schema import await_schema
from tests.fakes.server import wait_until


def _limited(turns: list[float], most: int) -> Callable[[float], bool]:
    def waits(seconds: float) -> bool:
        turns.append(seconds)
        return len(turns) >= most

    return waits


def test_a_database_that_is_there_is_not_waited_for(engine: sa.Engine) -> None:
    turns: list[float] = []
    assert await_schema(engine, waits=_limited(turns, 1))
    assert turns == []


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_database_that_is_away_is_waited_for(
    engine: sa.Engine, database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = make_engine(f"postgresql://farm@127.0.0.1:{free_port()}/farm")
    turns: list[float] = []
    assert not await_schema(away, waits=_limited(turns, 3))
    assert turns == [1.0] * 3
    away.dispose()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_database_that_refuses_us_is_not_waited_for(
    engine: sa.Engine, database_kind: str
) -> None:
    nobody = engine.url.set(username="nobody-of-this-name")
    for url in (nobody, engine.url.set(database="no-such-database")):
        refusing = make_engine(url.render_as_string(hide_password=False))
        with pytest.raises(Unreachable):
            await_schema(refusing, waits=lambda _: True)
        refusing.dispose()


def test_another_schema_is_not_waited_for(empty_engine: sa.Engine) -> None:
    with pytest.raises(Unreachable, match=f"expected {schema.revisions()[-1]}"):
        await_schema(empty_engine, waits=lambda _: True)


@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize(("name", "status"), [("scheduler", 0), ("collector", -15), ("web", -15)])
def test_a_process_that_waits_ends_when_it_is_asked_to(
    name: str, status: int, database_kind: str, tmp_path: Path
) -> None:
    environ = {
        **os.environ,
        "FARM_DATABASE_URL": f"postgresql://farm@127.0.0.1:{free_port()}/farm",
        "FARM_BROKER_URL": f"redis://127.0.0.1:{free_port()}/0",
        "FARM_HOME": str(tmp_path),
    }
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "farm.cli.main", "run", name]
        process = subprocess.Popen(command, env=environ, stderr=file)
    try:
        wait_until(lambda: "; waiting for it" in log.read_text(), "it says that it waits")
        process.terminate()
        assert process.wait(timeout=60) == status
    finally:
        process.kill()
        process.wait(timeout=60)
