"""What a collector counts as work when it tells how it is: what it stored, and nothing else."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import HEARTBEAT_TASK, REPORTS_TASK, make_app, open_client
from farm.broker.health_records import COLLECTOR, HealthReporter, read_health_records
from farm.collector.main import register_tasks
from farm.messages.agents import BeatEcho
from farm.messages.envelope import seal
from farm.messages.reports import Report, ReportBatch
from farm.settings.server import load_settings
from tests.factories import heartbeat
from tests.services.redis_server import RedisServer

BEAT = heartbeat()
BATCH = ReportBatch(
    agent_id="a",
    generation="g",
    reports=(Report(number=1, token=7, rank=0, kind="ended", body={}),),
)


class Collector:
    """One whose last work went wrong, until it has done some."""

    def __init__(self, engine: sa.Engine, broker_url: str) -> None:
        self._broker_url = broker_url
        self._app = make_app(broker_url)
        self._health = HealthReporter(COLLECTOR, broker_url)
        self._health.failed("the database was away")
        settings = load_settings({"FARM_BROKER_URL": broker_url, "FARM_HOME": "/dev/null/farm"})
        register_tasks(self._app, engine, settings, health=self._health)

    def has_worked_with(self, task: str, message: object) -> bool:
        self._health.failed("the database was away")
        self._app.tasks[task](seal(message))
        self._health.write()
        with open_client(self._broker_url, timeout_s=5) as client:
            [record] = read_health_records(client)
        return record.trouble is None

    def close(self) -> None:
        self._app.close()


@pytest.fixture
def collector(engine: sa.Engine, tmp_path: Path) -> Iterator[Collector]:
    broker = RedisServer(tmp_path)
    broker.start()
    collector = Collector(engine, broker.url)
    yield collector
    collector.close()
    broker.kill()


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_heartbeat_counts_as_work_unless_it_is_stale(collector: Collector) -> None:
    assert collector.has_worked_with(HEARTBEAT_TASK, BEAT)
    assert not collector.has_worked_with(HEARTBEAT_TASK, BEAT)  # it came twice
    echo = BeatEcho(server_time_s=time.time() - 3600.0, elapsed_s=0.0)
    old = dataclasses.replace(BEAT, counter=2, echo=echo)
    assert not collector.has_worked_with(HEARTBEAT_TASK, old)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_reports_count_as_work_unless_they_are_known(collector: Collector) -> None:
    assert collector.has_worked_with(REPORTS_TASK, BATCH)  # kept aside, since it came late
    assert not collector.has_worked_with(REPORTS_TASK, BATCH)
