"""Tells systemd that the collector's worker still turns, or has a reason not to."""

from __future__ import annotations

import time
from typing import Any

from celery.bootsteps import StartStopStep

from farm.processes.service_manager import ServiceManager

_TURN_S = 5.0
# A worker that is well turns every few seconds, unless it waits for a lock of the database.
_TURNS_WITHIN_S = 60.0


class WorkerTurns:
    """Tells the service manager of a worker that turns, or that waits for an absent broker.

    Celery's worker does nothing else while it connects, for minutes if need be, and starting it
    again would not bring the broker back.
    """

    def __init__(self, manager: ServiceManager, *, within_s: float = _TURNS_WITHIN_S) -> None:
        self._manager = manager
        self._within_s = within_s
        self._excused_s = time.monotonic()

    def watch(self, app: Any) -> None:
        """Let the worker of a Celery app tell of its turns, between messages."""
        told = self

        class Step(StartStopStep):  # type: ignore[misc] # Celery has no types
            """A part of Celery's consumer, which starts it anew with each connection."""

            requires = ("celery.worker.consumer:Tasks",)

            def start(self, parent: Any) -> None:
                parent.timer.call_repeatedly(_TURN_S, told.turned)

            def stop(self, parent: Any) -> None:
                """Leave the timer, which Celery clears with the connection."""

        app.steps["consumer"].add(Step)

    def turned(self) -> None:
        """Take notice of a turn."""
        self._excused_s = time.monotonic()

    def shown(self, is_seen: bool) -> None:
        """Take notice of whether the broker is there. Called by the sign of life's thread."""
        now = time.monotonic()
        if not is_seen:
            self._excused_s = now
        if now - self._excused_s <= self._within_s:
            self._manager.turned()
