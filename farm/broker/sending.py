"""Puts messages into the queues of the broker: commands for agents, reports and heartbeats.

It writes into Redis with redis-py, which takes a quarter of the processor time of Celery's
`send_task`. Queues have a limit, so they cannot fill a broker that nobody empties.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    REPORTS_TASK,
    SOCKET_TIMEOUT_S,
    agent_queue,
    command_task,
    open_client,
    own_queue,
)
from farm.broker.errors import translate_errors
from farm.broker.task_message import task_text
from farm.errors import NotFound
from farm.messages.commands import COMMAND_NAMES, Command
from farm.messages.envelope import seal
from farm.messages.signing import claimed_agent, is_signed

logger = logging.getLogger(__name__)

# A dead collector must not fill Redis: beyond these none is added. What came first stays, since it
# has waited for longest; an agent whose reports were not added sends them again.
HEARTBEATS_KEPT = 10_000
REPORTS_KEPT = 5_000
# An agent that signs adds to queues of its own, so that a flood of one delays no other, and wakes
# the collector. An honest one rarely has two messages there, except while no collector runs.
OWN_KEPT = 20

# Makes a sealed command one that its agent believes: takes the agent, the task and the envelope.
Signer = Callable[[str, str, dict[str, object]], dict[str, object]]
_Returned = TypeVar("_Returned")


class Sender:
    """Keeps its connections to one broker; nothing is connected yet. Threads may share it.

    Each method raises Unreachable within about 10 s, when some of its messages may have been sent.
    """

    def __init__(self, broker_url: str) -> None:
        """Raises InvalidSpec: not a Redis URL, or one that checks no certificate."""
        self._broker_url = broker_url
        self._client = open_client(broker_url, timeout_s=SOCKET_TIMEOUT_S)
        self._lengths: dict[str, int] = {}  # of queues, when something was last added to them here

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def send(
        self, commands: Iterable[tuple[str, Command]], *, signer: Signer | None = None
    ) -> None:
        """Put commands into their agents' queues, in order and with one exchange.

        What is meant for an agent without a key that counts is left out; some may be sent twice.
        """
        texts = list(_texts(commands, signer=signer))

        def put() -> None:
            pipe = self._client.pipeline(transaction=False)
            for queue, text in texts:
                pipe.lpush(queue, text)
            added = pipe.execute(raise_on_error=False)
            refused = [outcome for outcome in added if isinstance(outcome, Exception)]
            if len(refused) == len(texts):  # Redis may be full
                raise refused[0]
            for outcome in refused:  # a key of that name that is no list is nobody else's fault
                logger.warning("command not sent: %s", outcome)

        if texts:
            self._twice(put)

    def publish_reports(self, envelope: dict[str, object]) -> None:
        """Put a sealed batch into the collector's queue, unless that is as long as it may get."""
        self._publish(REPORTS_QUEUE, REPORTS_TASK, envelope, most=REPORTS_KEPT)

    def publish_heartbeat(self, envelope: dict[str, object]) -> None:
        """Put a sealed heartbeat into the queue, unless the queue has not been read for long.

        It does not expire by a clock: the sender's may be wrong, and an agent whose clock is would
        never be heard. Freshness is judged by `BeatEcho` instead.
        """
        self._publish(HEARTBEATS_QUEUE, HEARTBEAT_TASK, envelope, most=HEARTBEATS_KEPT)

    def waiting_count(self, agent_id: str) -> int:
        """Return how many messages for an agent it has not taken yet."""
        return self._twice(lambda: int(self._client.llen(agent_queue(agent_id))))

    def purge(self, queue: str) -> int:
        """Drop every message waiting in `queue` and return their number."""

        def empty() -> int:
            pipe = self._client.pipeline(transaction=False)
            pipe.llen(queue)
            pipe.delete(queue)
            count, _ = pipe.execute()
            return int(count)

        return self._twice(empty)

    def _publish(self, queue: str, task: str, envelope: dict[str, object], *, most: int) -> None:
        text = task_text(queue, task, envelope)
        agent_id = claimed_agent(envelope) if is_signed(envelope) else None
        own = None if agent_id is None else own_queue(queue, agent_id)

        def put() -> None:
            if own is None:
                self._add(queue, text, most=most)
            else:
                self._add(own, text, most=OWN_KEPT)
                self._client.lpush(OWN_QUEUES_WAKE_KEY, "1")

        self._twice(put)

    def _add(self, queue: str, text: str, *, most: int) -> None:
        # Asked only at first, and of a queue that was full when this one last added to it. An agent
        # may not shorten the queue: that would remove what others have sent.
        if self._lengths.get(queue, most) >= most:
            self._lengths[queue] = int(self._client.llen(queue))
        if self._lengths[queue] < most:
            self._lengths[queue] = int(self._client.lpush(queue, text))

    def _twice(self, put: Callable[[], _Returned]) -> _Returned:
        """Call `put`; once more at once where that fails, and then no more.

        The second time is for a connection that Redis closed while it was idle. More would only
        hide an outage from the caller, who has a schedule of its own for sending again.
        """
        import redis

        with translate_errors(self._broker_url):
            try:
                return put()
            except (redis.RedisError, OSError) as error:
                logger.debug("once more: %s", error)
                return put()


def _texts(
    commands: Iterable[tuple[str, Command]], *, signer: Signer | None
) -> Iterator[tuple[str, str]]:
    """Yield the queue and the text of each message."""
    for agent_id, command in commands:
        task = command_task(COMMAND_NAMES[type(command)])
        envelope = seal(command)
        if signer is not None:
            try:
                envelope = signer(agent_id, task, envelope)
            except NotFound as error:  # it was removed meanwhile, or never added
                logger.warning("command not sent: %s", error, extra={"agent_id": agent_id})
                continue
        queue = agent_queue(agent_id)
        yield queue, task_text(queue, task, envelope)
