"""A clock for the scheduler that notices when the system clock was set."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

# A change of the wall clock, beside the monotonic one, from one reading to the next. Time services
# slew by much less, and the scheduler reads its clock every second.
STEP_S = 1.0


class StepCorrectingClock:
    """A wall clock that has stored times corrected by `follow` when it finds that it was set.

    `follow` is called with the new time and the step in seconds, negative if the clock was set
    back; and once at the start with 0, since the clock may have been set before. If it raises, it
    is called again at the next reading.
    """

    def __init__(
        self,
        follow: Callable[[dt.datetime, float], None],
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follow = follow
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ahead_s: float | None = None  # the wall clock minus the monotonic one

    def now(self) -> dt.datetime:
        """Return the time; for several threads."""
        with self._lock:
            wall_s = self._wall()
            ahead_s = wall_s - self._monotonic()
            now = dt.datetime.fromtimestamp(wall_s, dt.UTC)
            step_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
            is_step = abs(step_s) > STEP_S
            if is_step:
                direction = "back" if step_s < 0 else "forward"
                logger.warning("the clock was set %s by %.1f s", direction, abs(step_s))
            if is_step or self._ahead_s is None:
                self._follow(now, step_s)
            self._ahead_s = ahead_s
            return now
