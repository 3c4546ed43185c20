"""What simulated agents publish lies in the farm's queues, and nothing more once these are full."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from benchmarks.fleet.outbox import Outbox
from farm.broker.celery_app import HEARTBEATS_QUEUE, REPORTS_QUEUE, REPORTS_TASK
from farm.broker.sending import REPORTS_KEPT
from farm.broker.task_message import read_task
from tests.services.redis_server import RedisServer


@pytest.fixture
def client(broker: RedisServer) -> Iterator[redis.Redis]:
    with broker.client() as client:
        yield client


def within_seconds(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_is_put_lies_in_its_queue_as_the_collector_reads_it(
    broker: RedisServer, client: redis.Redis
) -> None:
    with Outbox(broker.url) as outbox:
        assert outbox.put("reports", {"number": 1})
        assert outbox.put("heartbeats", {"number": 2})
        assert client.llen(REPORTS_QUEUE) == 0
        outbox.flush()
        assert within_seconds(lambda: client.llen(HEARTBEATS_QUEUE) == 1)
    [text] = client.lrange(REPORTS_QUEUE, 0, -1)
    assert read_task(text, queue=REPORTS_QUEUE) == (REPORTS_TASK, {"number": 1})


def test_nothing_is_added_to_a_queue_that_is_full_until_it_is_shorter(
    broker: RedisServer, client: redis.Redis
) -> None:
    client.lpush(REPORTS_QUEUE, *["waiting"] * REPORTS_KEPT)

    def is_taken() -> bool:
        """Flush after the message as the fleet does, again and again, which hears the answers."""
        was_put = outbox.put("reports", {})
        outbox.flush()
        return was_put

    with Outbox(broker.url) as outbox:
        assert within_seconds(lambda: not is_taken())
        length = client.llen(REPORTS_QUEUE)
        assert not any(is_taken() for _ in range(10))
        assert client.llen(REPORTS_QUEUE) == length
        client.delete(REPORTS_QUEUE)
        assert within_seconds(is_taken)
        assert within_seconds(lambda: client.llen(REPORTS_QUEUE) > 0)


def test_a_broker_that_is_gone_or_refuses_ends_the_agents(
    broker: RedisServer, client: redis.Redis
) -> None:
    def fails() -> bool:
        try:
            outbox.put("reports", {})
            outbox.flush()
        except ConnectionError:
            return True
        return False

    client.set(REPORTS_QUEUE, "no list")
    with Outbox(broker.url) as outbox:
        assert within_seconds(fails)
    with Outbox(broker.url) as outbox:
        broker.kill()
        assert within_seconds(fails)
