"""Measures how many rows per second collectors store, against a bare load of the same rows.

The backlog is made by the agents' own code: reports of two seconds each go into a real spool, and
what its delivery would send is sealed and published, about 500 rows a message. Then one collector,
the process that `farm run collector` is, takes it all. The clock runs from the moment at which the
backlog stands in the collector's queue, the collector being up and idle, until the last spool's
position is committed; the rows are counted afterwards.

The baseline loads the same rows into an empty copy of the same table, in this process and without
anything else: on SQLite `executemany` with a commit every 10,000 rows, on PostgreSQL one COPY.

Two collectors share what 2,400 agents send after an outage, one message each, as an agent sends the
next only when one is confirmed: a minute's work at their limit.

Limits: 20,000 rows a second on SQLite, 10,000 on PostgreSQL, 20,000 there with two collectors.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, root, run_benchmark, say
from benchmarks.server.rows import AgentSeries, FilledBacklog, add_running_attempts, publish_backlog
from farm.broker.celery_app import REPORTS_QUEUE
from farm.embedded.redis import RunningRedis, start_redis
from farm.errors import FarmError
from farm.store.engine import make_engine, reading, writing
from farm.store.result_tables import SampleRow
from farm.store.schema import upgrade
from farm.store.tables import SpoolPosition
from farm.text.display import duration
from tests.services.postgres_programs import NoPostgres
from tests.services.postgres_server import PostgresServer

SQLITE, POSTGRESQL, TWO = "SQLite", "PostgreSQL", "PostgreSQL, two collectors"
LIMITS_ROWS_PER_S = {SQLITE: 20_000, POSTGRESQL: 10_000, TWO: 20_000}
QUICK_TICK_COUNT = 100
_COMMIT_EVERY = 10_000
_ASIDE_KEY = "benchmark.backlog"
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What waits, and for how many; two collectors want agents with one message each."""

    agent_count: int = 20
    tick_count: int = 6000  # of each agent
    collector_count: int = 1

    @property
    def row_count(self) -> int:
        return self.agent_count * self.tick_count


LOADS = {
    SQLITE: Load(),
    POSTGRESQL: Load(),
    TWO: Load(agent_count=2400, tick_count=500, collector_count=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """`cpu_s`: of the collectors' processes alone."""

    row_count: int
    message_count: int
    elapsed_s: float
    cpu_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", choices=[*LIMITS_ROWS_PER_S], help="only this one")


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Measure each database in turn."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="farm-ingest-") as name:
        names = [given.database] if given.database else list(LOADS)
        for number, database in enumerate(names):
            load = LOADS[database]
            if given.quick:
                load = dataclasses.replace(load, tick_count=QUICK_TICK_COUNT)
            say(f"{database}: {load.row_count} rows")
            folder = Path(name) / str(number)
            if database == SQLITE:
                ours, rows = ingest(folder, f"sqlite:///{folder}/farm.db", load)
                bare_s = executemany_s(folder / "bare.db", rows, schema_of=folder / "farm.db")
                figures.append(_figure(database, "executemany", ours, bare_s))
                continue
            with postgres_database() as url:
                ours, rows = ingest(folder, url, load)
                bare_s = copy_s(url, rows)
            figures.append(_figure(database, "COPY", ours, bare_s))
    return figures


def _figure(database: str, bare: str, ours: Ingested, bare_s: float) -> BenchmarkFigure:
    limit = LIMITS_ROWS_PER_S[database]
    rows_per_s = ours.row_count / ours.elapsed_s
    return BenchmarkFigure(
        name=f"ingest into {database}",
        unit="rows/s",
        ours=rows_per_s,
        baseline=ours.row_count / bare_s,
        against=f"bare {bare}",
        limit=f"at least {limit:,} rows/s",
        reached=rows_per_s >= limit,
        note=f"{ours.row_count / ours.message_count:.0f} rows a message, "
        f"{duration(ours.cpu_s / ours.row_count)} of a collector's CPU time a row, "
        f"{ours.elapsed_s:.0f} s",
    )


def ingest(folder: Path, url: str, load: Load) -> tuple[Ingested, list[tuple[Any, ...]]]:
    """Preload a Redis, let collectors take it, and return how it went and the rows."""
    engine = make_engine(url)
    upgrade(engine)
    rng = random.Random(1)
    warming = 4 * load.collector_count  # agents, so that each collector has taken some
    with writing(engine) as session:
        series = add_running_attempts(session, agent_count=warming + load.agent_count)
    ours = series[warming:]
    with ExitStack() as stack:
        broker = stack.enter_context(start_redis(folder / "redis"))
        client = stack.enter_context(redis.Redis.from_url(broker.url))
        backlog = publish_backlog(
            broker.url, ours, spools=folder / "spools", tick_count=load.tick_count, rng=rng
        )
        if load.collector_count > 1 and backlog.message_count != load.agent_count:
            raise FarmError("two collectors would take two messages of one agent at once")
        client.rename(REPORTS_QUEUE, _ASIDE_KEY)
        collectors = [
            psutil.Process(stack.enter_context(running_collector(folder, url, broker)).pid)
            for _ in range(load.collector_count)
        ]
        warmed = publish_backlog(
            broker.url, series[:warming], spools=folder / "warm", tick_count=100, rng=rng
        )
        _wait_until_stored(engine, warmed)
        cpu_before_s = _cpu_s(collectors)
        begun = time.perf_counter()
        client.rename(_ASIDE_KEY, REPORTS_QUEUE)
        _wait_until_stored(engine, backlog)
        elapsed_s = time.perf_counter() - begun
        cpu_s = _cpu_s(collectors) - cpu_before_s
    rows = _stored_rows(engine, ours)
    engine.dispose()
    if len(rows) != load.row_count:
        raise FarmError(f"{len(rows)} rows were stored, expected {load.row_count}")
    ingested = Ingested(
        row_count=len(rows),
        message_count=backlog.message_count,
        elapsed_s=elapsed_s,
        cpu_s=cpu_s,
    )
    return ingested, rows


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


@contextmanager
def running_collector(
    folder: Path, database_url: str, broker: RunningRedis
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the collector as the embedded farm and systemd do."""
    environ = {**os.environ, "FARM_DATABASE_URL": database_url, "FARM_BROKER_URL": broker.url}
    command = [sys.executable, "-P", "-m", "farm.cli.main", "run", "collector"]
    with (folder / "collector.log").open("ab") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=root())
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_stored(engine: sa.Engine, backlog: FilledBacklog) -> None:
    """Watch the spools' positions, which are committed together with the rows."""
    deadline = time.monotonic() + _LIMIT_S
    query = sa.select(SpoolPosition.generation, SpoolPosition.confirmed_number)
    while True:
        with reading(engine) as session:
            stored = {generation: number for generation, number in session.execute(query)}
        if all(stored.get(gen) == last for gen, last in backlog.last_numbers.items()):
            return
        if time.monotonic() > deadline:
            raise FarmError(f"not everything was stored within {_LIMIT_S:.0f} s: see its log")
        time.sleep(0.02)


def _stored_rows(engine: sa.Engine, series: list[AgentSeries]) -> list[tuple[Any, ...]]:
    tokens = [one.token for one in series]
    columns = SampleRow.__table__.columns
    with reading(engine) as session:
        query = sa.select(*columns).where(SampleRow.attempt_id.in_(tokens))
        return [tuple(row) for row in session.execute(query)]


def executemany_s(file: Path, rows: list[tuple[Any, ...]], *, schema_of: Path) -> float:
    """Load the rows into a new SQLite file with the same table; return the seconds it took."""
    with sqlite3.connect(schema_of) as source:
        [(create,)] = source.execute("SELECT sql FROM sqlite_master WHERE name = 'samples'")
    plain = [(row[0].isoformat(), *row[1:]) for row in rows]
    columns = [column.name for column in SampleRow.__table__.columns]
    insert = f"INSERT INTO samples ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(create)
    begun = time.perf_counter()
    for start in range(0, len(plain), _COMMIT_EVERY):
        connection.execute("BEGIN IMMEDIATE")
        part = plain[start : start + _COMMIT_EVERY]
        connection.executemany(insert, part)
        connection.execute("COMMIT")
    elapsed_s = time.perf_counter() - begun
    connection.close()
    return elapsed_s


def copy_s(url: str, rows: list[tuple[Any, ...]]) -> float:
    """Load the rows into a new table like ours with one COPY; return the seconds it took."""
    columns = [column.name for column in SampleRow.__table__.columns]
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (LIKE samples INCLUDING ALL)")
        connection.commit()
        begun = time.perf_counter()
        with cursor.copy(f"COPY bare ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        return time.perf_counter() - begun


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the URL of an empty database: of the PostgreSQL that is named, or of our own.

    Raises:
        FarmError: there is none.
    """
    try:
        server = PostgresServer(is_durable=True)
    except NoPostgres as error:
        raise FarmError(str(error)) from error
    try:
        with server.database(is_migrated=False) as url:
            yield url
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
