"""Kombu's Redis transport, made deaf to messages that nobody here has sent.

Celery ends its whole worker over some malformed messages, puts them back as it goes, and so dies
of them again: one of them would silence a queue for everybody. Here only what looks like our own
reaches Celery, rebuilt without everything that it would act upon, such as callbacks or an ETA.
"""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis

logger = logging.getLogger(__name__)

NAME = "benchfarm-redis"
_TASK_PREFIXES = ("farm.", "agent.")


def register() -> str:
    """Make the transport known to Kombu and return its name."""
    TRANSPORT_ALIASES[NAME] = f"{__name__}:Transport"
    return NAME


def own_message(message: object, *, queue: str) -> dict[str, object] | None:
    """Return the message with nothing but what ours have, or None if it is not one of ours."""
    try:
        task, task_id = message["headers"]["task"], message["headers"]["id"]  # type: ignore[index]
        tag, body = message["properties"]["delivery_tag"], message["body"]  # type: ignore[index]
        args, _, _ = json.loads(base64.b64decode(body, validate=True))
    except (TypeError, KeyError, ValueError, RecursionError):
        return None
    if not all(isinstance(text, str) for text in (task, task_id, tag)):
        return None
    if not task.startswith(_TASK_PREFIXES) or not isinstance(args, list) or len(args) != 1:
        return None
    return {
        "body": base64.b64encode(json.dumps((args, {}, {})).encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": task, "id": task_id, "argsrepr": "..."},
        "properties": {
            "body_encoding": "base64",
            "correlation_id": task_id,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_mode": 2,
            "delivery_tag": tag,
            "priority": 0,
        },
    }


class Channel(kombu_redis.Channel):
    def _brpop_read(self, **options: Any) -> Any:
        self.connection.has_parsed = False
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call] # kombu
        except (ValueError, RecursionError):
            if self.connection.has_parsed:
                raise
            logger.warning("a message that is no JSON was dropped")
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
