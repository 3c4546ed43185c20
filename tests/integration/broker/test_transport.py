"""A worker that meets messages in no proper form, and a Redis that goes away and comes back."""

from __future__ import annotations

import base64
import json
import multiprocessing
import time
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
    run_worker,
)
from farm.broker.sending import Sender
from farm.broker.task_message import read_carried, task_text
from farm.collector.batch_reader import ArrivalRate, BatchReader
from tests.services.redis_server import RedisServer

LIMIT_S = 30.0
KILLING_S = 3.0


def work(url: str, transport: str | None, end: Connection) -> None:
    """Take reports and heartbeats; tell of each, and wait for a word before the next."""

    def take(carried: Any) -> None:
        try:
            envelope: Any = read_carried(carried)
        except ValueError:
            return
        end.send(envelope["number"] if isinstance(envelope, dict) else "something else")
        end.recv()

    app = make_app(url)
    if transport is not None:
        app.conf.broker_transport = transport
    for task in (REPORTS_TASK, HEARTBEAT_TASK):
        app.task(name=task)(take)
    try:
        run_worker(app, [HEARTBEATS_QUEUE, REPORTS_QUEUE], name="test")
    except RuntimeError as error:
        end.send(str(error))


class Worker:
    """The other end of it. `transport`: None is ours."""

    def __init__(self, url: str, transport: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=work, args=(url, transport, other))
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
def sender(broker: RedisServer) -> Iterator[Sender]:
    sender = Sender(broker.url)
    yield sender
    sender.close()


@pytest.fixture
def worker(broker: RedisServer) -> Iterator[Worker]:
    worker = Worker(broker.url)
    yield worker
    worker.kill()


def test_a_worker_whose_broker_is_restarted_takes_the_next_message(
    broker: RedisServer, sender: Sender, worker: Worker
) -> None:
    sender.publish_reports({"number": 1})
    assert worker.hears() == 1
    broker.kill()
    worker.go_on()
    broker.start()
    sender.publish_reports({"number": 2})
    assert worker.hears() == 2
    with broker.client() as client:
        assert client.keys() == [], "nothing is kept of what was taken"


def test_a_frozen_redis_does_not_end_the_taking(
    broker: RedisServer, sender: Sender, worker: Worker
) -> None:
    sender.publish_reports({"number": 1})
    assert worker.hears() == 1
    broker.freeze()
    worker.go_on()
    broker.thaw()
    sender.publish_reports({"number": 2})
    assert worker.hears() == 2


def test_connections_that_redis_has_closed_do_not_end_the_taking(
    broker: RedisServer, sender: Sender, worker: Worker
) -> None:
    sender.publish_reports({"number": 1})
    assert worker.hears() == 1
    with broker.client() as client:
        client.client_kill_filter(_type="normal")
    worker.go_on()
    sender.publish_reports({"number": 2})
    assert worker.hears() == 2


def test_connections_that_are_lost_again_and_again_are_made_a_few_times_a_second(
    broker: RedisServer, sender: Sender, worker: Worker
) -> None:
    """Celery waits before it connects again. If this fails, the farm has to."""
    sender.publish_reports({"number": 1})
    assert worker.hears() == 1
    worker.go_on()
    with broker.client() as client:
        made = client.info("stats")["total_connections_received"]
        end = time.monotonic() + KILLING_S
        while time.monotonic() < end:
            client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.05)  # longer than it takes to connect
        made = client.info("stats")["total_connections_received"] - made
    assert 1 <= made <= 10 * KILLING_S
    sender.publish_reports({"number": 2})
    assert worker.hears() == 2


def nested(depth: int) -> str:
    """Return one of our messages with lists within lists where the envelope belongs."""
    inner = "[" * depth + "]" * depth
    text = task_text(HEARTBEATS_QUEUE, HEARTBEAT_TASK, "HERE")
    message = json.loads(text)
    message["body"] = base64.b64encode(f"[[{inner}], {{}}, {{}}]".encode()).decode()
    return json.dumps(message)


def with_header(name: str, value: object) -> str:
    message = json.loads(task_text(HEARTBEATS_QUEUE, "farm.unknown", {}))
    message["headers"][name] = value
    return json.dumps(message)


NONSENSE = (
    *("", "[", "5", "null", "{}", "\xff", '{"headers": {}}', "[" * 100_000),
    # Python 3.11 parses about a thousand levels, fewer the deeper in the stack it does so.
    *(nested(depth) for depth in (*range(880, 1000, 4), 3000, 9000, 30_000)),
    *(with_header(name, []) for name in ("task", "id", "expires", "shadow", "timelimit")),
    *(with_header(name, 5) for name in ("stamps", "stamped_headers", "eta", "retries")),
)


def test_messages_in_no_proper_form_neither_end_a_worker_nor_hold_up_another_queue(
    broker: RedisServer, sender: Sender, worker: Worker
) -> None:
    with broker.client() as client:
        for text in NONSENSE:
            client.lpush(HEARTBEATS_QUEUE, text)
        sender.publish_reports({"number": 1})
        sender.publish_heartbeat({"number": 2})
        heard: list[object] = []
        while 2 not in heard:
            heard.append(worker.hears())
            worker.go_on()
        # Those that can be parsed are no envelopes, which is for the tasks to see.
        assert set(heard) <= {1, 2, "something else"}
        assert heard.index(1) < 3, "it was behind a message or two of the other queue, not all"


def test_celery_7975_still_ends_a_worker_of_kombus_own_transport(broker: RedisServer) -> None:
    """If this fails, see whether `farm.broker.transport` can go."""
    worker = Worker(broker.url, "redis")
    try:
        with broker.client() as client:
            client.lpush(REPORTS_QUEUE, "null")
        assert worker.hears() == "Celery's worker ended by itself, with status 1"
    finally:
        worker.kill()


LONG: dict[str, object] = {"number": 1, "text": "x" * 2**18}


def test_what_is_too_long_to_be_ours_is_not_even_parsed(sender: Sender, worker: Worker) -> None:
    """Brackets alone need 25 times their bytes: a message of 500 MB would end any collector."""
    sender.publish_heartbeat(LONG)
    sender.publish_heartbeat({"number": 2})
    assert worker.hears() == 2


def test_nor_is_it_where_several_are_taken_along(broker: RedisServer, sender: Sender) -> None:
    short: list[dict[str, object]] = [{"number": 2}, {"number": 3}]
    for envelope in (LONG, short[0], LONG, short[1]):
        sender.publish_heartbeat(envelope)
    reader = BatchReader(
        broker.url, queue=HEARTBEATS_QUEUE, task=HEARTBEAT_TASK, arrivals=ArrivalRate()
    )
    found: list[object] = []
    while len(found) < 2:
        with reader.around(None) as envelopes:
            found += envelopes[1:]
    assert found == short
