"""Keeps one courier alive, and replaces one that died, hangs or has gone deaf."""

from __future__ import annotations

import logging

from worker_agent.broker.link import CourierProcess
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import (
    CommandArrived,
    CourierEvent,
    CourierGone,
    CourierReady,
    OrderDone,
    Post,
)

logger = logging.getLogger(__name__)

PING_EVERY_S = 5.0
# Publishing gives up after about 10 s, so whoever is silent for this long does not work any more.
PING_LIMIT_S = 30.0
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
PROVEN_AFTER_S = 60.0
# A courier that publishes well and hears nothing may have lost its subscription, or the server
# may be away. A new one costs a second of CPU, so this is tried ever more rarely.
DEAF_AFTER_S = 60.0
DEAF_LIMIT_S = 1800.0


class Keeper:
    """Used in the supervisor's thread only. Instants are readings of the monotonic clock."""

    def __init__(self, config: AgentConfig, post: Post) -> None:
        self._config = config
        self._post = post
        self._courier: CourierProcess | None = None
        self._number = 0
        self._has_purged = False
        self._is_ready = False
        self._start_at = 0.0
        self._started_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._under_way: dict[str, int] = {}  # what is being published or pinged, by its order
        self._pinged_s = 0.0
        self._heard_s = 0.0
        self._deaf_after_s = DEAF_AFTER_S

    @property
    def is_ready(self) -> bool:
        """Whether there is a courier and it has reached the broker."""
        return self._is_ready

    @property
    def pids(self) -> frozenset[int]:
        """The courier's own process."""
        return frozenset({self._courier.pid}) if self._courier is not None else frozenset()

    def can_publish(self, what: str) -> bool:
        """Whether the courier is ready and has carried out the last order of this sort."""
        return self._is_ready and what not in self._under_way

    def has_published(self, what: str, event: CourierEvent) -> bool:
        """Whether the event says that the broker took what was published last."""
        return (
            isinstance(event, OrderDone)
            and self._courier is not None
            and event.courier == self._courier.number
            and event.error is None
            and self._under_way.get(what) == event.order
        )

    def publish(self, what: str, envelope: dict[str, object]) -> None:
        assert self._courier is not None
        self._under_way[what] = self._courier.publish(what, envelope)

    def tick(self, *, now: float) -> None:
        """Start, ping or kill the courier, as due."""
        if self._courier is None:
            if now >= self._start_at:
                self._start(now)
            return
        if not self._is_ready:
            return
        if "ping" in self._under_way:
            if now - self._pinged_s > PING_LIMIT_S:
                self._replace("courier did not answer for %.0f s", PING_LIMIT_S)
        elif now - self._pinged_s > PING_EVERY_S:
            self._under_way["ping"] = self._courier.ping()
            self._pinged_s = now
        if now - self._heard_s > self._deaf_after_s:
            self._replace("courier heard nothing for %.0f s", self._deaf_after_s)
            self._heard_s = now
            self._deaf_after_s = min(2 * self._deaf_after_s, DEAF_LIMIT_S)

    def handle(self, event: CourierEvent, *, now: float) -> bool:
        """Take an event; return whether it came from the present courier."""
        if self._courier is None or event.courier != self._courier.number:
            return False
        if isinstance(event, CourierReady):
            logger.info("courier is ready", extra={"courier": event.courier})
            self._is_ready = self._has_purged = True
            self._pinged_s = self._heard_s = now
        elif isinstance(event, OrderDone):
            self._finish(event)
        elif isinstance(event, CommandArrived):
            self._heard_s, self._deaf_after_s = now, DEAF_AFTER_S
            # It is on its way through the supervisor's only thread, so it cannot be lost here.
            self._courier.acknowledge(event.line)
        elif isinstance(event, CourierGone):
            self._lose(now)
        return True

    def stop(self) -> None:
        """Kill the courier and start no other."""
        self._start_at = float("inf")
        if self._courier is not None:
            self._courier.kill()

    def _start(self, now: float) -> None:
        self._number += 1
        self._started_s = now
        self._courier = CourierProcess(
            self._number, config=self._config, purge=not self._has_purged, post=self._post
        )
        extra = {"courier": self._number, "pid": self._courier.pid}
        logger.info("courier was started", extra=extra)

    def _finish(self, event: OrderDone) -> None:
        for what, order in list(self._under_way.items()):
            if order == event.order:
                del self._under_way[what]
                if event.error is not None:
                    logger.warning("%s were not sent: %s", what, event.error)

    def _replace(self, reason: str, limit_s: float) -> None:
        assert self._courier is not None
        logger.warning(reason, limit_s, extra={"courier": self._courier.number})
        self._courier.kill()

    def _lose(self, now: float) -> None:
        if now - self._started_s >= PROVEN_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        if self._start_at != float("inf"):
            self._start_at = now + self._pause_s
        logger.warning("courier is gone; the next starts in %.1f s", self._pause_s)
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        self._courier = None
        self._is_ready = False
        self._under_way.clear()
