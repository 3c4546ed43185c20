"""A background thread that repeats one function, on a schedule or when woken."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from farm.errors import FarmError

logger = logging.getLogger(__name__)

# An urgent turn waits for this much of a rest: many urgent requests, one after the other, would
# otherwise leave nothing of a core, and of the database, to others.
_URGENT_REST_RATIO = 0.5
_TROUBLE_LENGTH = 300  # characters of a database's error message, the statement included


class BackgroundThread:
    """Calls `work` at once, and again after the seconds that it returned, or when woken.

    A turn that fails is logged and repeated after `again_after_s`. `rest_ratio`: how long the
    thread rests after a turn, as a multiple of the processor time that the turn took. An urgent
    turn begins after half of that processor time.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        *,
        again_after_s: float,
        rest_ratio: float = 0.0,
    ) -> None:
        self._name = name
        self._work = work
        self._again_after_s = again_after_s
        self._rest_ratio = rest_ratio
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._urgent = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.turn_count = 0  # turns so far, failed ones included
        self.trouble: str | None = None  # why the last turn failed

    def start(self) -> None:
        self._thread.start()

    def wake(self, *, is_urgent: bool = False) -> None:
        """Begin the next turn as soon as allowed; calls during a turn add one turn."""
        self._woken.set()
        if is_urgent:
            self._urgent.set()

    def request_stop(self) -> None:
        """Begin no further turn. Returns at once, so that several threads can stop in parallel."""
        self._stopping.set()
        self._urgent.set()
        self._woken.set()

    def stop(self) -> None:
        """Stop, and wait for the present turn, for some seconds at most."""
        self.request_stop()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            self._urgent.clear()
            begun_s = time.thread_time()
            wait_s = self._turn()
            self.turn_count += 1
            self._rest(time.thread_time() - begun_s)
            # Checked again: `request_stop` may have set the event before it was cleared above.
            if not self._stopping.is_set():
                self._woken.wait(wait_s)

    def _rest(self, worked_s: float) -> None:
        """Pause after a turn of so much processor time, unless the thread is to stop."""
        urgent_ratio = min(self._rest_ratio, _URGENT_REST_RATIO)
        if not self._stopping.wait(urgent_ratio * worked_s):
            self._urgent.wait((self._rest_ratio - urgent_ratio) * worked_s)

    def _turn(self) -> float:
        """Do the work once; return the seconds until the next turn."""
        try:
            wait_s = self._work()
        except (DBAPIError, FarmError) as error:
            self.trouble = " ".join(str(error).split())[:_TROUBLE_LENGTH]
            logger.warning("%s failed: %s", self._name, self.trouble)
        except Exception as error:
            self.trouble = repr(error)[:_TROUBLE_LENGTH]
            logger.exception("%s failed", self._name)
        else:
            self.trouble = None
            return wait_s
        return self._again_after_s
