"""Kombu's Redis transport, made deaf to messages that nobody here has sent.

Celery ends its whole worker over some malformed messages, puts them back as it goes, and so dies
of them again: one of them would silence a queue for everybody. Here only what looks like our own
reaches Celery, rebuilt without everything that it would act upon, such as callbacks or an ETA.

What Redis refuses is logged and gone on from, here or by `run_worker`: a broker that is full, lacks
a command or holds a key of another type must end nobody. Where a message in hand cannot be written
down or acknowledged, it is handled all the same: its sender sends it again until it is answered.

Its body is parsed here, once. Left to themselves Kombu and Celery would parse it twice more, which
for a batch of samples costs more than storing them.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import re
import time
from typing import Any, NamedTuple

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.transport import redis as kombu_redis
from redis.exceptions import ResponseError

from farm.broker.task_message import task_message

logger = logging.getLogger(__name__)

NAME = "benchfarm-redis"
_TASK_PREFIXES = ("farm.", "agent.")
_OPENING = re.compile(r"\s*\[\s*")
_DECODER = json.JSONDecoder()
# Of a message as it lies in Redis, which takes 512 MB. Parsed, brackets alone need 25 times their
# bytes: whoever may add to a queue could end its reader by memory, and again whenever the message
# is given out anew. A report is as long as a trainer's line, of 4 MiB, or a few that are short;
# signed and encoded that is four times as much at most. A heartbeat has some thousand bytes.
LONGEST_BYTES = 32 * 2**20
_LONGEST_OF = {"farm.heartbeats": 256 * 1024}
# Before a queue is read again that Redis did not let be read.
_REFUSED_PAUSE_S = 1.0


def register() -> str:
    """Make the transport known to Kombu and return its name."""
    TRANSPORT_ALIASES[NAME] = f"{__name__}:Transport"
    return NAME


class OwnMessage(dict[str, object]):
    """A message as it is kept in Redis until it is acknowledged, and its arguments beside it."""

    args: list[object]


def is_too_long(text: bytes, *, queue: str) -> bool:
    """Whether a message that lay in `queue` is too long to be even parsed."""
    return len(text) > _LONGEST_OF.get(queue, LONGEST_BYTES)


def own_message(message: object, *, queue: str) -> OwnMessage | None:
    """Return the message with nothing but what ours have, or None if it is not one of ours."""
    parts = _own_parts(message)
    if parts is None:
        return None
    body = f"[{parts.text}, {{}}, {{}}]"
    own = OwnMessage(
        task_message(queue, parts.task, body, task_id=parts.task_id, delivery_tag=parts.tag)
    )
    own.args = parts.args
    return own


def own_argument(message: object) -> tuple[str, object] | None:
    """Return task and argument of a message that is not kept, or None if it is not one of ours."""
    parts = _own_parts(message)
    return None if parts is None else (parts.task, parts.args[0])


class _Parts(NamedTuple):
    """What a message of ours says. `text`: its arguments as they were written."""

    task: str
    task_id: str
    tag: str
    args: list[object]
    text: str


def _own_parts(message: object) -> _Parts | None:
    try:
        task, task_id = message["headers"]["task"], message["headers"]["id"]  # type: ignore[index]
        tag, body = message["properties"]["delivery_tag"], message["body"]  # type: ignore[index]
        args, text = _arguments(base64.b64decode(body, validate=True).decode())
    except (TypeError, KeyError, ValueError, RecursionError):
        return None
    if not all(isinstance(text, str) for text in (task, task_id, tag)):
        return None
    if not task.startswith(_TASK_PREFIXES) or not isinstance(args, list) or len(args) != 1:
        return None
    return _Parts(task, task_id, tag, args, text)


def _arguments(body: str) -> tuple[object, str]:
    """Return the first item of a body's three, and the text that it was. Raises ValueError."""
    opening = _OPENING.match(body)
    if opening is None:
        raise ValueError("a body is a list")
    args, end = _DECODER.raw_decode(body, opening.end())
    _, _, _ = json.loads(f"[0{body[end:]}")
    return args, body[opening.end() : end]


class Message(virtual.Message):
    """What Celery gets of an `OwnMessage`: the arguments alone, and nothing left to decode."""

    def __init__(self, payload: OwnMessage, channel: Any = None, **kwargs: Any) -> None:
        empty = {**payload, "body": None, "content-type": None, "content-encoding": None}
        super().__init__(empty, channel=channel, **kwargs)  # type: ignore[no-untyped-call] # kombu
        self._raw = payload
        self.body = self._decoded_cache = (payload.args, {}, {})


class QoS(kombu_redis.QoS):
    """Knows which messages are in hand; one that could not be acknowledged no longer is.

    Kombu would count it for as long as the channel lives. With one message at a time a worker whose
    Redis goes away during an acknowledgement would then take no further one, and not even look at
    its connection, though it lives. Redis gives such a message out again after the visibility
    timeout, and every handler takes a second one for what it is.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        try:
            super().append(message, delivery_tag)  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            # A full Redis refuses it, and what is taken makes room.
            logger.warning("a message in hand was not written down: %s", error)
            virtual.QoS.append(self, message, delivery_tag)  # type: ignore[no-untyped-call] # kombu

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge as Kombu does, but outside of a transaction.

        A full Redis takes no transaction, not even one that makes room. The message goes first: a
        tag without one is removed when its time is over.
        """
        try:
            with self.channel.conn_or_acquire() as client:
                pipe = client.pipeline(transaction=False)
                pipe.hdel(self.unacked_key, delivery_tag)
                pipe.zrem(self.unacked_index_key, delivery_tag)
                pipe.execute()
        except ResponseError as error:
            logger.warning("a message was not acknowledged, and comes again: %s", error)
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        try:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            logger.warning("a message was not put back: %s", error)
        finally:
            self._quick_ack(delivery_tag)

    def restore_visible(self, start: int = 0, num: int | None = 10, interval: int = 10) -> None:
        """Give out again what was taken and not acknowledged in time; `num` of it, or all.

        With each call, whatever `interval`: Kombu calls it each five or ten seconds by itself.
        As Kombu does it, but for a lock around it, whose release is a script: no agent's account
        needs to run any. Two who meet here do no harm, since each message is put back in a
        transaction that finds it gone if the other was first.
        """
        overdue = time.time() - self.visibility_timeout
        try:
            with self.channel.conn_or_acquire() as client:
                portion = {"offset": start, "num": num} if num else {}
                index = self.unacked_index_key
                for tag in client.zrange(index, overdue, 0, desc=True, byscore=True, **portion):
                    self.restore_by_tag(tag, client)  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            logger.warning("messages that nobody acknowledged were not given out again: %s", error)


def _bounded(answer: Any, **_: Any) -> tuple[bytes, bytes] | None:
    """Return what BRPOP did, which Kombu parses next; what is too long as nobody's message."""
    if not answer:
        return None
    queue, text = answer
    return queue, b"null" if is_too_long(text, queue=queue.decode()) else text


class Channel(kombu_redis.Channel):
    """`lengths`: how long a queue was when something was last added to it here.

    `forbidden`: queues to which this account may not add.
    """

    Message = Message
    QoS = QoS
    _kept_client: Any = None

    @functools.cached_property
    def lengths(self) -> dict[str, int]:
        return {}

    @functools.cached_property
    def forbidden(self) -> set[str]:
        return set()

    def _size(self, queue: str) -> int:
        """Return how many messages wait; 0 also where that cannot be told, as of another type."""
        try:
            return int(super()._size(queue))  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            logger.warning("the length of queue %s is not known: %s", queue, error)
            return 0

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Note which queue an exchange leads to. Nobody here sends by an exchange."""
        try:
            super()._queue_bind(exchange, routing_key, pattern, queue)  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            logger.warning("queue %s was not bound: %s", queue, error)

    def _create_client(self, asynchronous: bool = False) -> Any:  # kombu's
        """Keep one client for the pool: each new one fills a table of 200 commands first."""
        if asynchronous:
            client: Any = super()._create_client(asynchronous=True)  # type: ignore[no-untyped-call] # kombu
            client.set_response_callback("BRPOP", _bounded)
            return client
        if self._kept_client is None or self._kept_client.connection_pool is not self.pool:
            self._kept_client = super()._create_client()  # type: ignore[no-untyped-call] # kombu
        return self._kept_client

    def _brpop_read(self, **options: Any) -> Any:
        self.connection.has_parsed = False
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call] # kombu
        except (ValueError, RecursionError):
            if self.connection.has_parsed:
                raise
            logger.warning("a message that is no JSON was dropped")
            return True
        except ResponseError as error:
            logger.warning("no message can be taken: %s", error)
            # The next try begins with another queue: it may be one of several that is refused.
            for queue in self._queue_cycle.consume(1):
                self._queue_cycle.rotate(queue)
            time.sleep(_REFUSED_PAUSE_S)
            return True


class Transport(kombu_redis.Transport):
    """`has_parsed`: what went wrong since the last read did so behind it."""

    Channel = Channel
    has_parsed = False

    def _deliver(self, message: object, queue: str) -> None:
        self.has_parsed = True
        own = own_message(message, queue=queue)
        if own is None:
            logger.warning("a message from somebody else was dropped", extra={"queue": queue})
            return
        super()._deliver(own, queue)  # type: ignore[no-untyped-call] # kombu has no types
