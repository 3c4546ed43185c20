"""Takes further messages from a queue so that several are stored in one transaction.

Celery delivers one message at a time. Each would need a commit, a sync of the disk and three
exchanges with Redis, while a thousand agents send seven hundred messages a second. So the messages
that wait behind a delivered one are taken here, straight from the queue, and stored with it.

If the collector dies, messages that were taken and not stored are lost from the queue. No data is
lost: an agent sends its reports again until they are confirmed, and its heartbeat regularly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farm.broker.celery_app import SOCKET_TIMEOUT_S, open_client
from farm.broker.errors import broker_errors
from farm.broker.task_message import read_task

logger = logging.getLogger(__name__)

FEWEST, MOST = 4, 200
# Long enough to be worth its commit, and short beside what the other queue may be made to wait.
_AIM_S = 0.2
# Of one collector. With 1,000 agents and two of them it is 265, and letting messages gather saves a
# quarter of the collectors' processor time; at fewer what gathers are one or two.
_MANY_PER_S = 80.0
_GATHER_S = 0.05
_WATCH_S = 1.0  # for so long messages are counted
# No lock is held for so long while the store is well.
_STUCK_S = 5.0
# Taken from Redis with one exchange, and of how many bytes in all no more are: it hands over what
# it has, however long.
_AT_ONCE = 25
_ENOUGH_BYTES = 2**25


class BatchSize:
    """How many messages are stored together, so that they take about `_AIM_S` of work. Pure.

    It measures processor time, not elapsed time: a batch waits once for a lock, such as one that
    the scheduler holds. Smaller batches would wait more often, and fall behind when there is most
    to do.
    """

    def __init__(self) -> None:
        self.count = FEWEST

    def took(self, count: int, *, work_s: float, time_s: float) -> None:
        """Learn from a batch: its processor time, and how long it took.

        A small batch only shows that a larger one may be tried. A batch that took very long was
        probably not stored, and messages taken while the store is away have to be sent again.
        """
        fitting = int(count * _AIM_S / max(work_s, 1e-6))
        if time_s > _STUCK_S:
            self.count = FEWEST
        elif work_s > _AIM_S:
            self.count = max(FEWEST, min(fitting, self.count))
        elif count >= self.count:
            self.count = min(MOST, 2 * self.count, max(fitting, FEWEST))


class ArrivalRate:
    """How often messages arrive, and so whether to wait for more before taking them. Pure.

    It counts all queues of a collector, whose one thread does not wait for one queue while another
    is behind.

    A batch costs some milliseconds however small it is: Celery, a commit, exchanges with Redis.
    With many agents, batches of two or three messages would waste that. With few agents it is
    little, and waiting would only delay a gang at each of its barriers.
    """

    def __init__(self) -> None:
        self._are_many = False
        self._behind: set[str] = set()  # queues in which more waits than was taken
        self._count = 0
        self._since_s: float | None = None

    @property
    def gather_s(self) -> float:
        """How long to wait before the next batch is taken."""
        return _GATHER_S if self._are_many and not self._behind else 0.0

    def came(self, count: int, *, queue: str, is_full: bool, now_s: float) -> None:
        """Record that a batch was taken at `now_s`, a reading of the monotonic clock."""
        (self._behind.add if is_full else self._behind.discard)(queue)
        self._count += count
        if self._since_s is None:
            self._count, self._since_s = 0, now_s
        elif now_s - self._since_s >= _WATCH_S:
            self._are_many = self._count / (now_s - self._since_s) >= _MANY_PER_S
            self._count, self._since_s = 0, now_s


class BatchReader:
    """Takes batches of messages from one queue; it has one client, for one thread.

    `arrivals`: of all queues that this thread serves.
    """

    def __init__(self, broker_url: str, *, queue: str, task: str, arrivals: ArrivalRate) -> None:
        self._client: Any = open_client(broker_url, timeout_s=SOCKET_TIMEOUT_S)
        self._queue = queue
        self.task = task
        self._batch_size = BatchSize()
        self._arrivals = arrivals

    @contextmanager
    def around(self, envelope: object) -> Iterator[list[object]]:
        """Yield the delivered message and, in order, those to store with it.

        The work done in the block decides the size of the next batch.
        """
        time.sleep(self._arrivals.gather_s)
        envelopes = [envelope, *self.more(self._batch_size.count - 1)]
        self._arrivals.came(
            len(envelopes),
            queue=self._queue,
            is_full=len(envelopes) >= self._batch_size.count,
            now_s=time.monotonic(),
        )
        work_s, begun_s = time.thread_time(), time.monotonic()
        yield envelopes
        self._batch_size.took(
            len(envelopes),
            work_s=time.thread_time() - work_s,
            time_s=time.monotonic() - begun_s,
        )

    def more(self, count: int = MOST) -> list[object]:
        """Take at most `count` further messages."""
        envelopes = []
        for text in self._texts(count):
            read = read_task(text, queue=self._queue)
            if read is None or read[0] != self.task:
                logger.warning(
                    "a message from somebody else was dropped", extra={"queue": self._queue}
                )
                continue
            envelopes.append(read[1])
        return envelopes

    def _texts(self, count: int) -> list[bytes]:
        texts: list[bytes] = []
        while len(texts) < count and sum(map(len, texts)) < _ENOUGH_BYTES:
            batch_size = min(_AT_ONCE, count - len(texts))
            try:
                taken = self._client.rpop(self._queue, batch_size) or []
            except broker_errors() as error:
                # Celery notices as well, and waits for the broker, unless only the right to this
                # is missing: then each message is stored by itself.
                logger.warning("nothing was taken along from %s: %s", self._queue, error)
                break
            texts += taken
            if len(taken) < batch_size:
                break
        return texts
