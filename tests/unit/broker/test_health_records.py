"""What a server process says of a broker that is away."""

from __future__ import annotations

import logging
import queue

import pytest

from farm.broker.health_records import SCHEDULER, HealthReporter
from farm.embedded.redis import free_port


def test_a_broker_that_is_away_is_told_of_at_the_first_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    seen: queue.SimpleQueue[bool] = queue.SimpleQueue()
    health = HealthReporter(SCHEDULER, f"redis://:secret@127.0.0.1:{port}/0", shown=seen.put)
    with caplog.at_level(logging.INFO):
        health.start()
        assert seen.get() is False
        health.stop()
    [line] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert f"127.0.0.1:{port}" in line
    assert "does not answer" in line
    assert "the scheduler goes on trying" in line
    assert "secret" not in line
