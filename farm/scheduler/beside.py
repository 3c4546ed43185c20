"""Work that others must not wait for, done again and again in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from farm.errors import FarmError

logger = logging.getLogger(__name__)

# Who is in a hurry waits for this much of a rest: many who ask one after the other would otherwise
# leave nothing of a core, and of the database, to others.
_HURRIED_REST_RATIO = 0.5
_TOLD_LENGTH = 300  # of what a database has to say, the statement included


class Beside:
    """Calls `work` at once and then again, as many seconds later as it returns, or when rung for.

    What fails is told of and done again after `again_after_s`. `rest_ratio`: the work is left alone
    for so many times the processor time that it took, so that it leaves some to others; who is in a
    hurry gets it done after half of that processor time.
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
        self._bell = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.turn_count = 0  # how often it has been done, if only in vain
        self.trouble: str | None = None  # what made it fail, the last time

    def start(self) -> None:
        self._thread.start()

    def ring(self, *, in_a_hurry: bool = False) -> None:
        """Have it done as soon as may be; however often during one turn, it is done once more."""
        self._bell.set()
        if in_a_hurry:
            self._hurry.set()

    def ask_to_stop(self) -> None:
        """Have nothing more begun; for many threads of which none shall wait for another."""
        self._stopping.set()
        self._hurry.set()
        self._bell.set()

    def stop(self) -> None:
        """Wait for what is under way, for some seconds at most."""
        self.ask_to_stop()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._bell.clear()
            self._hurry.clear()
            begun_s = time.thread_time()
            wait_s = self._turn()
            self.turn_count += 1
            self._rest(time.thread_time() - begun_s)
            # Asked anew: the bell of whoever wanted it to stop may be cleared by now.
            if not self._stopping.is_set():
                self._bell.wait(wait_s)

    def _rest(self, worked_s: float) -> None:
        """Leave time to others after so much processor time; not if asked to stop."""
        hurried_ratio = min(self._rest_ratio, _HURRIED_REST_RATIO)
        if not self._stopping.wait(hurried_ratio * worked_s):
            self._hurry.wait((self._rest_ratio - hurried_ratio) * worked_s)

    def _turn(self) -> float:
        """Do it once; return for how long nobody needs it again."""
        try:
            wait_s = self._work()
        except (DBAPIError, FarmError) as error:
            self.trouble = " ".join(str(error).split())[:_TOLD_LENGTH]
            logger.warning("%s failed: %s", self._name, self.trouble)
        except Exception as error:
            self.trouble = repr(error)[:_TOLD_LENGTH]
            logger.exception("%s failed", self._name)
        else:
            self.trouble = None
            return wait_s
        return self._again_after_s
