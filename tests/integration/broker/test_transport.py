"""A worker whose Redis goes away between the taking of a message and its acknowledgement."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    make_app,
    publish_heartbeat,
    publish_reports,
    run_worker,
)
from farm.collector.gathering import Arrivals, Gathering
from tests.redis_server import RedisServer

LIMIT_S = 30.0
NOT_ACKNOWLEDGED = "Couldn't ack"


def work(url: str, end: Connection) -> None:
    """Take reports; tell of each and wait for a word before it is acknowledged."""

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if NOT_ACKNOWLEDGED in record.getMessage():
                end.send(NOT_ACKNOWLEDGED)

    def take(envelope: Any) -> None:
        end.send(envelope["number"])
        end.recv()

    logging.getLogger().addHandler(Teller())
    app = make_app(url, owner="test")
    app.task(name=REPORTS_TASK)(take)
    run_worker(app, [REPORTS_QUEUE], name="test")


class Worker:
    """The other end of it."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=work, args=(url, other))
        self._process.start()

    def hears(self) -> object:
        assert self._end.poll(LIMIT_S), "nothing was heard of the worker"
        return self._end.recv()

    def go_on(self) -> None:
        self._end.send("go on")

    def kill(self) -> None:
        self._process.kill()
        self._process.join(timeout=60)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, keeps_file=True, writes_first=True)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def app(broker: RedisServer) -> Iterator[Any]:
    app = make_app(broker.url, owner="test")
    yield app
    app.close()


@pytest.fixture
def worker(broker: RedisServer) -> Iterator[Worker]:
    worker = Worker(broker.url)
    yield worker
    worker.kill()


def test_a_worker_that_could_not_acknowledge_takes_the_next_message(
    broker: RedisServer, app: Any, worker: Worker
) -> None:
    publish_reports(app, {"number": 1})
    assert worker.hears() == 1
    broker.kill()
    worker.go_on()
    assert worker.hears() == NOT_ACKNOWLEDGED
    broker.start()
    publish_reports(app, {"number": 2})
    assert worker.hears() == 2
    with broker.client() as client:
        assert client.hlen("farm.unacked.test") == 2, "the first comes again after its time"


def test_a_frozen_redis_in_an_acknowledgement_does_not_end_the_taking(
    broker: RedisServer, app: Any, worker: Worker
) -> None:
    publish_reports(app, {"number": 1})
    assert worker.hears() == 1
    broker.freeze()
    worker.go_on()
    assert worker.hears() == NOT_ACKNOWLEDGED
    broker.thaw()
    publish_reports(app, {"number": 2})
    assert worker.hears() == 2


def test_connections_that_redis_has_closed_do_not_end_the_taking(
    broker: RedisServer, app: Any, worker: Worker
) -> None:
    publish_reports(app, {"number": 1})
    assert worker.hears() == 1
    with broker.client() as client:
        client.client_kill_filter(_type="normal")
    worker.go_on()
    publish_reports(app, {"number": 2})
    assert worker.hears() == 2


LONG: dict[str, object] = {"number": 1, "text": "x" * 2**18}


def test_what_is_too_long_to_be_ours_is_not_even_parsed(app: Any) -> None:
    """Brackets alone need 25 times their bytes: a message of 500 MB would end any collector."""
    publish_heartbeat(app, LONG)
    publish_heartbeat(app, {"number": 2})
    with app.connection_for_read() as connection, connection.SimpleQueue(HEARTBEATS_QUEUE) as own:
        assert own.get(timeout=LIMIT_S).payload[0] == [{"number": 2}]


def test_nor_is_it_where_several_are_taken_along(broker: RedisServer, app: Any) -> None:
    short: list[dict[str, object]] = [{"number": 2}, {"number": 3}]
    for envelope in (LONG, short[0], LONG, short[1]):
        publish_heartbeat(app, envelope)
    gathering = Gathering(
        broker.url, queue=HEARTBEATS_QUEUE, task=HEARTBEAT_TASK, arrivals=Arrivals()
    )
    found: list[object] = []
    while len(found) < 2:
        with gathering.around(None) as envelopes:
            found += envelopes[1:]
    assert found == short
