"""What the store needs now and then, beside the rounds: partitions for the days to come."""

from __future__ import annotations

import datetime as dt
import logging
import threading

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from farm.errors import Unreachable
from farm.store.partitions import make_partitions, missing_days

logger = logging.getLogger(__name__)

_EVERY_S = 3600.0
_AGAIN_AFTER_S = 60.0  # where something was left to do


class Housekeeping:
    """A thread of its own, since a round must not wait for the locks that this needs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for what is under way, which ends within seconds."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                wait_s = _EVERY_S if keep_house(self._engine) else _AGAIN_AFTER_S
            except (DBAPIError, Unreachable) as error:
                logger.warning("housekeeping failed: %s", " ".join(str(error).split())[:300])
                wait_s = _AGAIN_AFTER_S
            except Exception:
                logger.exception("housekeeping failed")
                wait_s = _AGAIN_AFTER_S


def keep_house(engine: Engine) -> bool:
    """Do what is due; False if something is left for a better moment."""
    today = dt.datetime.now(dt.UTC).date()
    make_partitions(engine, today=today)
    return not missing_days(engine, today=today)
