"""The simulated fleet of the benchmarks: what it tells when something went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fleet.logs import tail, telling_logs
from benchmarks.fleet.server import server_environ
from farm.errors import FarmError
from farm.settings.server import load_settings


def test_an_error_of_a_fleet_carries_the_end_of_every_log(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "redis.log").write_text("out of memory\n")
    (tmp_path / "scheduler.log").write_text("".join(f"line {n}\n" for n in range(100)))
    (tmp_path / "collector-0.log").touch()
    with pytest.raises(FarmError) as error, telling_logs(tmp_path):
        raise FarmError("nothing came through")
    text = str(error.value)
    assert text.startswith("nothing came through\n--- redis/redis.log\nout of memory\n")
    assert text.endswith("line 98\nline 99")
    assert "line 80\n" not in text
    assert "collector-0" not in text, "nothing stands in it"


def test_the_end_of_a_long_log_is_read_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff" * 100_000 + b"\nlast\n")
    assert tail(log).endswith("\nlast")
    assert len(tail(log)) < 20_000


def test_no_process_of_a_fleets_server_knows_the_users_farm(tmp_path: Path) -> None:
    users = {"FARM_HOME": "/home/me/farm", "FARM_SIGNING": "on", "AGENT_CPUS": "0", "PATH": "/bin"}
    environ = server_environ(
        users,
        folder=tmp_path,
        database_url="postgresql://127.0.0.1/b",
        broker_url="redis://127.0.0.1:1/0",
        lease_s=20.0,
    )
    assert load_settings(environ).home == tmp_path / "home"
    assert environ["PATH"] == "/bin"
    assert not {"FARM_SIGNING", "AGENT_CPUS"} & set(environ)
    without = {name: value for name, value in environ.items() if name != "FARM_HOME"}
    assert not load_settings(without).home.is_relative_to(tmp_path), "the default is the user's"
