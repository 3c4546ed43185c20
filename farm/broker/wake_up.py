"""Wakes the scheduler through a key in Redis."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farm.broker.celery_app import SOCKET_TIMEOUT_S, open_client
from farm.broker.errors import broker_errors

WAKE_KEY = "farm.wake"
_SEND_TIMEOUT_S = 1.0


class WakeReason(enum.Enum):
    """The store has changed, or a user has submitted jobs and waits for them."""

    CHANGED = "1"
    REQUESTED = "asked"


class WakeUp:
    """A signal to the scheduler after a write to the store, which saves polling.

    It is a Redis list of at most one element. Signals that were not yet received are merged, and
    the merged one is REQUESTED if any of them was. A lost signal costs only time, since the
    scheduler also reads the store regularly.
    """

    def __init__(self, broker_url: str, *, keeps_connections: bool = False) -> None:
        """With `keeps_connections`, for a caller that sends or waits all the time, in one thread.

        Connecting is most of what a signal costs: three times as much as storing a small report.
        """
        self._url = broker_url
        self._keeps_connections = keeps_connections
        self._kept: dict[float, Any] = {}  # clients of Redis, by their limit

    def send(self, why: WakeReason = WakeReason.CHANGED) -> bool:
        """Wake the scheduler; return False if the broker does not answer within about a second."""
        try:
            with self._client(_SEND_TIMEOUT_S) as client:
                pipe = client.pipeline()
                # The first is kept: what has changed goes behind what is there, and is gone.
                (pipe.lpush if why is WakeReason.REQUESTED else pipe.rpush)(WAKE_KEY, why.value)
                pipe.ltrim(WAKE_KEY, 0, 0)
                pipe.execute()
        except broker_errors():
            return False
        return True

    def wait(self, timeout_s: float) -> WakeReason | None:
        """Wait for a signal; None after `timeout_s`, also while the broker does not answer."""
        deadline = time.monotonic() + timeout_s
        try:
            with self._client(timeout_s + SOCKET_TIMEOUT_S) as client:
                popped = client.blpop([WAKE_KEY], timeout=timeout_s)
        except broker_errors():
            # Without this pause a caller's loop would spin for as long as Redis is away.
            time.sleep(max(0.0, deadline - time.monotonic()))
            return None
        if popped is None:
            return None
        return (
            WakeReason.REQUESTED
            if popped[1] == WakeReason.REQUESTED.value.encode()
            else WakeReason.CHANGED
        )

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
