"""Work that a round must not wait for, done again and again in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from farm.errors import FarmError

logger = logging.getLogger(__name__)


class Beside:
    """Calls `work` at once and then again, as many seconds later as it returns.

    What fails is told of and done again after `again_after_s`.
    """

    def __init__(self, name: str, work: Callable[[], float], *, again_after_s: float) -> None:
        self._name = name
        self._work = work
        self._again_after_s = again_after_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for what is under way, for some seconds at most."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            wait_s = self._again_after_s
            try:
                wait_s = self._work()
            except (DBAPIError, FarmError) as error:
                logger.warning("%s failed: %s", self._name, " ".join(str(error).split())[:300])
            except Exception:
                logger.exception("%s failed", self._name)
