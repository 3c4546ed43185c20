"""Publishing to a broker that is well, frozen or gone; the bell; the purge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.core.commands import StopAttempt
from farm.errors import Unreachable
from farm.wire import (
    HEARTBEATS_QUEUE,
    Wake,
    agent_queue,
    make_app,
    publish_heartbeat,
    purge_queue,
    send_command,
)
from tests.redis_server import RedisServer

STOP = StopAttempt(token=1, reason="test")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_frozen_broker_is_unreachable_within_ten_seconds(broker: RedisServer) -> None:
    app = make_app(broker.url, owner="test")
    send_command(app, "a", STOP)
    broker.freeze()
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="start Redis there"):
        send_command(app, "a", STOP)
    assert time.monotonic() - begun < 11
    broker.thaw()
    send_command(app, "a", STOP)
    app.close()


def test_a_restarted_broker_takes_the_next_message_at_once(broker: RedisServer) -> None:
    app = make_app(broker.url, owner="test")
    send_command(app, "a", STOP)
    broker.kill()
    with pytest.raises(Unreachable):
        send_command(app, "a", STOP)
    broker.start()
    send_command(app, "a", STOP)
    assert broker.client().llen(agent_queue("a")) == 1
    app.close()


def test_heartbeats_that_nobody_takes_do_not_fill_the_broker(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.wire.HEARTBEATS_KEPT", 3)
    app = make_app(broker.url, owner="test")
    for number in range(5):
        publish_heartbeat(app, {"number": number})
    with broker.client() as client:
        waiting = client.lrange(HEARTBEATS_QUEUE, 0, -1)
    assert len(waiting) == 3
    app.close()


def test_a_queue_is_purged(broker: RedisServer) -> None:
    app = make_app(broker.url, owner="test")
    for _ in range(3):
        send_command(app, "a", STOP)
    assert purge_queue(app, agent_queue("a")) == 3
    assert purge_queue(app, agent_queue("a")) == 0
    app.close()


def test_many_rings_wake_once(broker: RedisServer) -> None:
    wake = Wake(broker.url)
    assert wake.ring()
    assert wake.ring()
    assert wake.wait(5)
    assert not wake.wait(0.1)
