"""Runs the server of simulated agents as processes, and measures their CPU and memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis
import sqlalchemy as sa

from benchmarks.figures import root
from benchmarks.fleet.logs import telling_logs
from benchmarks.stopping import stop
from farm.broker.celery_app import HEARTBEATS_QUEUE, REPORTS_QUEUE
from farm.broker.wake_up import WakeUp
from farm.embedded.redis import start_redis
from farm.errors import FarmError
from farm.store.engine import make_engine
from farm.store.schema import upgrade

_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """What was seen at one instant. `cpu_s` and `memory_bytes`: by part of the server."""

    at_s: float
    reports_waiting: int
    heartbeats_waiting: int
    redis_bytes: int
    database_bytes: int
    cpu_s: dict[str, float]
    memory_bytes: dict[str, int]


@dataclass(slots=True)
class FleetServer:
    """Redis, PostgreSQL, collectors and a timed scheduler, up and watched."""

    broker_url: str
    engine: sa.Engine
    wake: WakeUp
    folder: Path
    environ: dict[str, str]
    processes: dict[str, list[psutil.Process]]
    readings: list[ServerReading] = field(default_factory=list)

    def turns(self, name: str, *, since_s: float, until_s: float) -> list[dict[str, Any]]:
        """Return what the scheduler noted of one loop's turns between two Unix times."""
        file = self.folder / "turns.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [
            line for line in lines if line["name"] == name and since_s <= line["at_s"] <= until_s
        ]

    def between(self, since_s: float, until_s: float) -> list[ServerReading]:
        return [r for r in self.readings if since_s <= r.at_s <= until_s]

    def read(self, client: redis.Redis, connection: sa.Connection) -> ServerReading:
        """Read the lengths of the queues, the sizes and each part's CPU seconds and memory."""
        cpu_s: dict[str, float] = {}
        memory_bytes: dict[str, int] = {}
        for part, members in self.processes.items():
            seen = [m for member in members for m in _family(member, part)]
            cpu_s[part] = sum(t.user + t.system for t, _ in seen)
            memory_bytes[part] = sum(size for _, size in seen)
        size = connection.scalar(sa.text("SELECT pg_database_size(current_database())"))
        info: Any = client.info("memory")
        reports: Any = client.llen(REPORTS_QUEUE)
        beats: Any = client.llen(HEARTBEATS_QUEUE)
        return ServerReading(
            at_s=time.time(),
            reports_waiting=reports,
            heartbeats_waiting=beats,
            redis_bytes=info["used_memory"],
            database_bytes=size or 0,
            cpu_s=cpu_s,
            memory_bytes=memory_bytes,
        )


def _family(process: psutil.Process, part: str) -> list[tuple[Any, int]]:
    """Return CPU times and resident bytes of a process, and of PostgreSQL's all proportional ones.

    A backend's resident bytes are nearly all shared buffers; of them only the private ones count.
    """
    members = [process, *process.children(recursive=True)] if part == "postgresql" else [process]
    found = []
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = member.memory_info()
            found.append((member.cpu_times(), memory.rss - (memory.shared * (len(members) > 1))))
    return found


def server_environ(
    ours: Mapping[str, str], *, folder: Path, database_url: str, broker_url: str, lease_s: float
) -> dict[str, str]:
    """Return the environment of all processes of a server: nothing of any other farm's is in it.

    Its home is in `folder`. Without one they would keep what they have fitted in the user's.
    """
    return {
        **{k: v for k, v in ours.items() if not k.startswith(("FARM_", "AGENT_"))},
        "FARM_HOME": str(folder / "home"),
        "FARM_DATABASE_URL": database_url,
        "FARM_BROKER_URL": broker_url,
        "FARM_LOG_LEVEL": "WARNING",
        "FARM_LEASE_S": f"{lease_s:g}",
        # What simulated agents report is random, and no reason to measure it again.
        "FARM_NOISE_POLICY": "flag",
        "PYTHONPATH": str(root()),
    }


@contextmanager
def fleet_server(
    folder: Path, database_url: str, *, collectors: int, lease_s: float = 20.0
) -> Iterator[FleetServer]:
    """Run everything but agents; the database is migrated first."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = make_engine(database_url)
    upgrade(engine)
    with telling_logs(folder), ExitStack() as stack:
        stack.callback(engine.dispose)
        broker = stack.enter_context(start_redis(folder / "redis"))
        environ = server_environ(
            os.environ,
            folder=folder,
            database_url=database_url,
            broker_url=broker.url,
            lease_s=lease_s,
        )
        run = [sys.executable, "-P", "-m"]
        commands = {
            f"collector-{i}": ["farm.cli.main", "run", "collector"] for i in range(collectors)
        }
        commands["scheduler"] = ["benchmarks.fleet.scheduler", str(folder / "turns.jsonl")]
        (folder / "turns.jsonl").touch()
        processes: dict[str, list[psutil.Process]] = {}
        for name, command in commands.items():
            child = stack.enter_context(_running(run + command, environ, folder / f"{name}.log"))
            part = name.split("-")[0]
            processes.setdefault(part, []).append(psutil.Process(child.pid))
        processes["redis"] = [psutil.Process(broker.pid)]
        with engine.connect() as connection:
            backend = connection.scalar(sa.text("SELECT pg_backend_pid()"))
        postmaster = psutil.Process(backend).parent()
        assert postmaster is not None
        processes["postgresql"] = [postmaster]
        server = FleetServer(broker.url, engine, WakeUp(broker.url), folder, environ, processes)
        stack.enter_context(_watched(server))
        yield server


@contextmanager
def _running(
    command: Sequence[str], environ: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file, cwd=root())
    try:
        yield process
        ended_with = process.poll()
    finally:
        stop(process)
    # What a farm in trouble took is no figure.
    if ended_with is not None:
        raise FarmError(f"{log.name}: the process ended by itself, with status {ended_with}")
    if errors := [line for line in log.read_text().splitlines() if _is_error(line)]:
        raise FarmError(f"{log.name} tells of {len(errors)} errors, first: {errors[0]}")


def _is_error(line: str) -> bool:
    return any(mark in line for mark in (" ERROR ", " CRITICAL ", "Traceback"))


@contextmanager
def _watched(server: FleetServer) -> Iterator[None]:
    """Take a reading every second, in a thread."""
    stopping = threading.Event()

    def watch() -> None:
        with (
            redis.Redis.from_url(server.broker_url) as client,
            server.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        ):
            while not stopping.wait(_EVERY_S):
                server.readings.append(server.read(client, connection))

    thread = threading.Thread(target=watch, name="readings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=10)
