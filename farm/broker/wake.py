"""A bell that wakes the scheduler, in the broker."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farm.broker.celery_app import SOCKET_TIMEOUT_S, open_client
from farm.broker.errors import broker_errors

WAKE_KEY = "farm.wake"
_RING_TIMEOUT_S = 1.0


class Ring(enum.Enum):
    """Why somebody rings: the store has changed, or whoever has asked for jobs waits for them."""

    CHANGED = "1"
    ASKED = "asked"


class Wake:
    """A bell for the scheduler: who wrote to the store rings, so that nobody has to poll.

    It is a Redis list of at most one element: rings that nobody heard are one ring, which says that
    somebody has asked if any of them did. A lost ring costs only time, since the scheduler also
    looks by itself now and then.
    """

    def __init__(self, broker_url: str, *, keeps_connections: bool = False) -> None:
        """With `keeps_connections`, for whoever rings or waits all the time, in one thread.

        To connect is most of what a ring costs: three times as much as to store a small report.
        """
        self._url = broker_url
        self._keeps_connections = keeps_connections
        self._kept: dict[float, Any] = {}  # clients of Redis, by their limit

    def ring(self, why: Ring = Ring.CHANGED) -> bool:
        """Ring, or return False after about a second when the broker does not answer."""
        try:
            with self._client(_RING_TIMEOUT_S) as client:
                pipe = client.pipeline()
                # The first is kept: what has changed goes behind what is there, and is gone.
                (pipe.lpush if why is Ring.ASKED else pipe.rpush)(WAKE_KEY, why.value)
                pipe.ltrim(WAKE_KEY, 0, 0)
                pipe.execute()
        except broker_errors():
            return False
        return True

    def wait(self, timeout_s: float) -> Ring | None:
        """Wait for a ring; None after `timeout_s`, also while the broker does not answer."""
        deadline = time.monotonic() + timeout_s
        try:
            with self._client(timeout_s + SOCKET_TIMEOUT_S) as client:
                heard = client.blpop([WAKE_KEY], timeout=timeout_s)
        except broker_errors():
            # Without this pause a caller's loop would spin for as long as Redis is away.
            time.sleep(max(0.0, deadline - time.monotonic()))
            return None
        if heard is None:
            return None
        return Ring.ASKED if heard[1] == Ring.ASKED.value.encode() else Ring.CHANGED

    @contextmanager
    def _client(self, timeout_s: float) -> Iterator[Any]:
        if not self._keeps_connections:
            with open_client(self._url, timeout_s=timeout_s) as client:
                yield client
            return
        if timeout_s not in self._kept:
            self._kept[timeout_s] = open_client(self._url, timeout_s=timeout_s)
        try:
            yield self._kept[timeout_s]
        except broker_errors():
            # An answer that came late would be taken for that of the next question.
            self._kept[timeout_s].connection_pool.disconnect()
            raise
