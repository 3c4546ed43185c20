"""What the farm writes can be read by its own user alone, whatever umask it was started with."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.embedded.home import Endpoints, locked, write_endpoints
from farm.embedded.processes import LoggedProcess, Program
from farm.embedded.redis import start_redis
from farm.messages.commands import StopAttempt
from farm.messages.reports import RankStarted
from farm.store.engine import make_engine
from tests.fakes.server import wait_until
from tests.machine.agents import AgentFarm

FARM = [sys.executable, "-m", "farm.cli.main"]


def exposed(folder: Path) -> list[str]:
    """Return what others may open or change, of a folder and all that is in it."""
    found = []
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if mode & 0o077 and not stat.S_ISLNK(mode):
            found.append(f"{path.relative_to(folder)} {stat.filemode(mode)}")
    return found


def umask_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Umask:"))


@pytest.fixture(params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of the tests' own process, and so of what it starts."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_store_and_the_folders_above_it_are_private(umask: int, tmp_path: Path) -> None:
    file = tmp_path / "new" / "home" / "farm.db"
    engine = make_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (a INTEGER)"))
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        assert file.with_name("farm.db-wal").exists()
        assert exposed(tmp_path / "new") == []
    engine.dispose()


def test_a_store_that_was_opened_to_a_group_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "farm.db"
    file.touch()
    file.chmod(0o660)
    engine = make_engine(f"sqlite:///{file}")
    engine.connect().close()
    engine.dispose()
    assert stat.S_IMODE(file.stat().st_mode) == 0o660


def test_what_an_embedded_farm_writes_is_private(umask: int, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    endpoints = Endpoints(
        dashboard_url="http://127.0.0.1:8000",
        broker_url="redis://:secret@10.0.0.1/0",
        broker_port=6379,
    )
    with locked(home):
        write_endpoints(home, endpoints)
        program = Program(name="touch", argv=("/bin/true",), environ={})
        child = LoggedProcess(program, log_dir=home / "logs")
        child.start()
        child.reap()
        with start_redis(home / "redis") as redis:
            assert umask_of(redis.child.pid) == "0077"
            wait_until(lambda: any((home / "redis").glob("append*/*")), "Redis has written")
        assert exposed(tmp_path / "new") == []


def test_what_commands_write_into_a_home_is_private(umask: int, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FARM_")}
    subprocess.run(
        [*FARM, "db", "upgrade"],
        env={**environment, "FARM_HOME": str(home)},
        check=True,
        capture_output=True,
    )
    assert (home / "farm.db").exists()
    assert exposed(tmp_path / "new") == []


def test_a_process_of_the_server_writes_for_its_own_user(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FARM_")}
    settings = {"FARM_HOME": str(tmp_path / "home"), "FARM_BROKER_URL": "redis://127.0.0.1:1/0"}
    scheduler = subprocess.Popen(
        [*FARM, "run", "scheduler"],
        env={**environment, **settings},
        umask=0,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: umask_of(scheduler.pid) == "0077", "its umask is closed")
    finally:
        scheduler.kill()
        scheduler.wait()


def test_an_agents_files_are_private_and_its_trainers_have_the_umask_it_was_given(
    umask: int, tmp_path: Path
) -> None:
    with AgentFarm(tmp_path) as farm:
        farm.umask = umask
        agent = farm.agent("steps_s:0.05")
        gang = farm.gang(7, agent, steps=10_000)
        gang.lead_to_go()
        gang.wait_for(RankStarted)
        assert {umask_of(pid) for pid in agent.trainers()} == {f"{umask:04o}"}
        farm.server.send(agent.agent_id, StopAttempt(token=7, reason="it is over"))
        wait_until(lambda: not agent.trainers(), "its rank is ended")
        assert (agent.state_dir / "highest_token").exists()
        assert exposed(agent.state_dir) == []
