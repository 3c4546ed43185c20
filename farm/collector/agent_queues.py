"""Moves messages from each agent's own queue to the shared queue that Celery reads.

An agent that signs has a queue of its own, which its account at the broker proves. So it cannot
delay other agents. Each turn takes a few messages from every queue. Messages beyond an account's
quota are deleted unread, and so are those that make a queue longer than an honest agent's. A flood
therefore fills the broker with no more than arrives during one turn.

If the collector dies, messages that were taken and not handed over are lost. No data is lost: an
agent sends its reports again until they are confirmed, and its heartbeat regularly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    REPORTS_TASK,
    SOCKET_TIMEOUT_S,
    open_client,
    own_queue,
)
from farm.broker.errors import broker_errors
from farm.broker.health_records import HealthReporter
from farm.broker.sending import HEARTBEATS_KEPT, OWN_KEPT, REPORTS_KEPT
from farm.broker.task_message import is_too_long
from farm.collector.quotas import Quotas
from farm.errors import Unreachable

logger = logging.getLogger(__name__)

# Of one queue in one turn, and no more than its quota has left: others wait behind what is brought.
_AT_ONCE = 10
_LEAST_PAUSE_S = 0.01
# Of a core: a turn asks for each agent's queues, whether it has sent anything or not. With 1,000
# agents that is 30 ms of a core, and 50 ms where each has sent a message.
_MOST_SHARE = 0.2
_WAIT_S = 1.0  # a signal may be lost
_PAUSE_AFTER_ERROR_S = 1.0
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class _Kind:
    """`queue`: the shared queue of a task; nothing is moved while `most` messages wait there."""

    task: str
    queue: str
    most: int
    quotas: Quotas


class AgentQueues:
    """`agents` returns the names of agents with keys. It runs in a thread of its own.

    `quotas`: by task, the same that the tasks charge; moved messages are charged in advance.
    Limited accounts are reported to `health`.
    """

    def __init__(
        self,
        broker_url: str,
        *,
        agents: Callable[[], Collection[str]],
        quotas: Mapping[str, Quotas],
        health: HealthReporter,
    ) -> None:
        self._client: Any = open_client(broker_url, timeout_s=_WAIT_S + SOCKET_TIMEOUT_S)
        self._agents = agents
        self._known: Collection[str] = ()
        self._health = health
        self._kinds = (
            _Kind(HEARTBEAT_TASK, HEARTBEATS_QUEUE, HEARTBEATS_KEPT, quotas[HEARTBEAT_TASK]),
            _Kind(REPORTS_TASK, REPORTS_QUEUE, REPORTS_KEPT, quotas[REPORTS_TASK]),
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="own-queues", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the present turn."""
        self._stopping.set()
        self._thread.join(timeout=_STOP_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            begun_s = time.thread_time()
            try:
                if self._health.is_ours:
                    self.turn()
                work_s = time.thread_time() - begun_s
                self._stopping.wait(max(_LEAST_PAUSE_S, work_s * (1 / _MOST_SHARE - 1)))
                self._client.brpop([OWN_QUEUES_WAKE_KEY], timeout=_WAIT_S)
            except broker_errors() as error:
                logger.warning("agents' own queues were not emptied: %s", error)
                self._stopping.wait(_PAUSE_AFTER_ERROR_S)
            except Exception:
                logger.exception("agents' own queues were not emptied")
                self._stopping.wait(_PAUSE_AFTER_ERROR_S)

    def turn(self) -> None:
        """Move a few messages of each agent, and delete those beyond its quota.

        Raises:
            Exception: one of `broker_errors`.
        """
        self._client.delete(OWN_QUEUES_WAKE_KEY)  # however many signals there were
        with suppress(Unreachable):  # a flood goes on while the store is away
            self._known = self._agents()
        for kind in self._kinds:
            self._bring(kind, self._known)

    def _bring(self, kind: _Kind, agents: Collection[str]) -> None:
        allowed = {name: kind.quotas.allowed(name, most=_AT_ONCE) for name in agents}
        self._drop(kind, [name for name, count in allowed.items() if not count])
        if self._client.llen(kind.queue) >= kind.most:
            self._trim(kind, agents)
            return
        pipe = self._client.pipeline(transaction=False)
        names = [name for name, count in allowed.items() if count]
        for name in names:
            pipe.rpop(own_queue(kind.queue, name), allowed[name])
        brought: list[bytes] = []
        long = []
        for name, texts in zip(names, _answers(pipe), strict=True):
            if texts:
                # In base64 three bytes are four characters.
                byte_count = 3 * sum(map(len, texts)) // 4
                kind.quotas.charge_ahead(name, messages=len(texts), bytes=byte_count)
                brought += [text for text in texts if not is_too_long(text, queue=kind.queue)]
                if len(texts) == allowed[name]:
                    long.append(name)
        if brought:
            self._client.lpush(kind.queue, *brought)
        if long:
            self._trim(kind, long)

    def _drop(self, kind: _Kind, spent: Collection[str]) -> None:
        if not spent:
            return
        pipe = self._client.pipeline(transaction=False)
        for name in spent:
            pipe.llen(own_queue(kind.queue, name))
            pipe.delete(own_queue(kind.queue, name))
        for name, count in zip(spent, _answers(pipe)[::2], strict=True):
            if count:
                kind.quotas.drop(name, count)
        self._tell(kind)

    def _trim(self, kind: _Kind, names: Collection[str]) -> None:
        """Keep the first messages of each queue, as many as an honest agent may have."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.llen(own_queue(kind.queue, name))
            pipe.ltrim(own_queue(kind.queue, name), -OWN_KEPT, -1)
        for name, count in zip(names, _answers(pipe)[::2], strict=True):
            if count and count > OWN_KEPT:
                kind.quotas.drop(name, count - OWN_KEPT)
        self._tell(kind)

    def _tell(self, kind: _Kind) -> None:
        dropped = kind.quotas.dropped()
        if dropped:
            self._health.hold_back(kind.task, dropped)


def _answers(pipe: Any) -> list[Any]:
    """Return the result of each command; None for a refused one, as for a wrong key type."""
    answers = pipe.execute(raise_on_error=False)
    for error in answers:
        if isinstance(error, Exception):
            logger.warning("an agent's own queue was passed over: %s", error)
    return [None if isinstance(answer, Exception) else answer for answer in answers]
