"""Publishes the messages of simulated agents over one connection per process.

A real agent waits until Redis has taken each message, on a machine of its own. A thousand of them
on the server's would spend most of their time so, and take it from the server that is measured.
What lies in the queues is the same, and as much of it: how long a queue is stands in each answer.
"""

from __future__ import annotations

import select
from collections import deque

from benchmarks.fleet.broker import command, connected
from farm.broker.celery_app import HEARTBEAT_TASK, HEARTBEATS_QUEUE, REPORTS_QUEUE, REPORTS_TASK
from farm.broker.sending import HEARTBEATS_KEPT, REPORTS_KEPT
from farm.broker.task_message import task_text

_DESTINATIONS = {
    "heartbeats": (HEARTBEATS_QUEUE, HEARTBEAT_TASK, HEARTBEATS_KEPT),
    "reports": (REPORTS_QUEUE, REPORTS_TASK, REPORTS_KEPT),
}
_RECEIVE_BYTES = 64 * 1024


class Outbox:
    """Keeps what is put into it until `flush`; used in a `with` block."""

    def __init__(self, broker_url: str) -> None:
        self._connection = connected(broker_url)
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self._unsent: list[bytes] = []
        self._asked: deque[str] = deque()  # the queue of each answer that is still to come
        self._answers = bytearray()
        self._lengths: dict[str, int] = {}

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def put(self, what: str, envelope: dict[str, object]) -> bool:
        """Add a message; False if its queue is full: nothing is added, and its length is asked."""
        queue, task, most = _DESTINATIONS[what]
        is_full = self._lengths.get(queue, 0) >= most
        words = ("LLEN", queue) if is_full else ("LPUSH", queue, task_text(queue, task, envelope))
        self._unsent.append(command(*words))
        self._asked.append(queue)
        self._lengths[queue] = self._lengths.get(queue, 0) + (not is_full)
        return not is_full

    def flush(self) -> None:
        """Send what was put, and hear what has been answered by now.

        Raises:
            OSError: the broker is gone, does not answer, or refused a message.
        """
        if self._unsent:
            self._connection.sendall(b"".join(self._unsent))
            self._unsent.clear()
        if not self._poll.poll(0):
            return
        heard = self._connection.recv(_RECEIVE_BYTES)
        if not heard:
            raise ConnectionResetError("the broker closed a connection")
        *answers, rest = bytes(self._answers + heard).split(b"\r\n")
        self._answers = bytearray(rest)
        for answer in answers:
            if not answer.startswith(b":"):
                raise ConnectionError(f"the broker refused a message: {answer.decode()}")
            self._lengths[self._asked.popleft()] = int(answer[1:])
