"""Processes that meet a Redis which is full, lacks commands, or holds keys of another type.

Through processes and their logs, so that it is the same with another transport.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import HEARTBEAT_TASK, HEARTBEATS_QUEUE, REPORTS_QUEUE
from farm.broker.task_message import task_text
from farm.messages.envelope import seal
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_job, heartbeat
from tests.fakes.server import wait_until
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


def beat_text(agent_id: str) -> str:
    return task_text(HEARTBEATS_QUEUE, HEARTBEAT_TASK, seal(heartbeat(agent_id=agent_id)))


class Process:
    """A process of the server, and what it has logged."""

    def __init__(self, name: str, *, engine: sa.Engine, broker: RedisServer, folder: Path) -> None:
        self._engine = engine
        self._log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "FARM_DATABASE_URL": engine.url.render_as_string(hide_password=False),
            "FARM_BROKER_URL": broker.url,
            "FARM_HOME": str(folder),
        }
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "farm.cli.main", "run", name]
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.waits_for_log(f"{name} started")

    def log(self) -> str:
        return self._log.read_text()

    def waits_for_log(self, text: str, *, after: int = 0) -> None:
        wait_until(lambda: self._has_logged(text, after=after), f"{text!r} in {self._log}")

    def _has_logged(self, text: str, *, after: int) -> bool:
        assert self._process.poll() is None, self.log()
        return re.search(text, self.log()[after:]) is not None

    def has_heard(self, agent_id: str) -> bool:
        assert self._process.poll() is None, self.log()
        with reading(self._engine) as session:
            return session.get(AgentRow, agent_id) is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(timeout=60)


@pytest.fixture
def collector(engine: sa.Engine, broker: RedisServer, tmp_path: Path) -> Iterator[Process]:
    process = Process("collector", engine=engine, broker=broker, folder=tmp_path)
    yield process
    process.kill()


def hears(collector: Process, broker: RedisServer, agent_id: str) -> None:
    with broker.client() as client:
        client.lpush(HEARTBEATS_QUEUE, beat_text(agent_id))
    wait_until(lambda: collector.has_heard(agent_id), f"{agent_id} is heard")


def test_a_full_redis_is_emptied_by_the_collector(collector: Process, broker: RedisServer) -> None:
    with broker.client() as client:
        pipe = client.pipeline()
        for n in range(40):
            pipe.lpush(HEARTBEATS_QUEUE, beat_text(f"a{n}"))
        pipe.config_set("maxmemory", 1)
        pipe.execute()
        wait_until(lambda: collector.has_heard("a39"), "all are heard")
        assert client.llen(HEARTBEATS_QUEUE) == 0
        client.config_set("maxmemory", 0)
    hears(collector, broker, "b")


# Of the collector's loop and of what it does beside it.
COMMANDS = ("brpop", "rpop", "ping")


@pytest.mark.slow  # each command needs a Redis of its own, started twice
def test_a_redis_that_does_not_know_a_command_is_waited_for(
    collector: Process, broker: RedisServer
) -> None:
    for command in COMMANDS:
        broker.kill()
        before = len(collector.log())
        broker.start("--rename-command", command, "")
        with broker.client() as client:
            client.lpush(HEARTBEATS_QUEUE, beat_text(f"before-{command}"))
        collector.waits_for_log(f"(?i){command}", after=before)
        broker.kill()
        broker.start()
        hears(collector, broker, f"after-{command}")


def test_the_doctor_tells_a_full_broker_from_an_absent_scheduler(
    engine: sa.Engine, broker: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = FarmCommand(engine, tmp_path / "home", monkeypatch)
    monkeypatch.setenv("FARM_BROKER_URL", broker.url)
    with writing(engine) as session:
        add_agent(session, heartbeat_at=dt.datetime.now(dt.UTC))
        job_id = add_job(session)

    def reasons() -> tuple[str, str, str]:
        checks = json.loads(farm.run("doctor", "--json").stdout)["checks"]
        what = {check["name"]: str(check["findings"]) for check in checks}
        why = farm.json("job", str(job_id))["waits_because"]
        return what["broker"], what["scheduler"], why

    _, scheduler, why = reasons()
    assert "no scheduler runs" in scheduler
    assert "no scheduler runs" in why
    with broker.client() as client:
        client.config_set("maxmemory", 1)
        full, scheduler, why = reasons()
        client.config_set("maxmemory", 0)
        client.set(REPORTS_QUEUE, "of another program")
        foreign, _, _ = reasons()
    assert "it takes no messages: command not allowed when used memory > 'maxmemory'" in full
    assert "no scheduler runs" not in scheduler
    assert "it is not known whether one runs: the broker takes no health records" in scheduler
    assert "the broker takes no messages" in why
    assert f"its key {REPORTS_QUEUE} holds a string and not a list" in foreign


def test_a_key_of_another_type_costs_its_own_queue_and_no_other(
    collector: Process, broker: RedisServer
) -> None:
    with broker.client() as client:
        client.delete(REPORTS_QUEUE)
        client.set(REPORTS_QUEUE, "of another program")
        hears(collector, broker, "beside")
