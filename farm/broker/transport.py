"""Kombu's Redis transport, extended to drop messages that none of our processes has sent.

A malformed message makes Celery end its worker (celery/celery#7975, open since 2022), so one such
message would block a queue for everybody. The test named after that issue fails once Kombu's own
transport can be used.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from kombu.transport import redis as kombu_redis
from redis.exceptions import ResponseError

from farm.broker.task_message import rewritten

logger = logging.getLogger(__name__)

# Before a queue is read again that Redis did not let be read.
_REFUSED_PAUSE_S = 1.0


class Channel(kombu_redis.Channel):
    """Reads each message before Kombu does, and writes it again without what Celery acts upon."""

    def _create_client(self, asynchronous: bool = False) -> Any:
        client: Any = super()._create_client(asynchronous=asynchronous)  # type: ignore[no-untyped-call] # kombu
        client.set_response_callback("BRPOP", self._ours)
        return client

    def _ours(self, answer: Any, **_: Any) -> tuple[bytes, str] | None:
        if not answer:
            return None
        queue = answer[0].decode()
        text = rewritten(answer[1], queue=queue)
        if text is not None:
            return answer[0], text
        logger.warning("a message from somebody else was dropped", extra={"queue": queue})
        self._queue_cycle.rotate(queue)
        return None  # as if nothing had come

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call] # kombu
        except ResponseError as error:
            logger.warning("no message can be taken: %s", error)
            # The next try begins with another queue: it may be one of several that is refused.
            for queue in self._queue_cycle.consume(1):
                self._queue_cycle.rotate(queue)
            time.sleep(_REFUSED_PAUSE_S)
            return True


class Transport(kombu_redis.Transport):
    Channel = Channel
