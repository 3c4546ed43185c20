"""What the store needs now and then, beside the two loops: partitions for the days to come."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine

from farm.scheduler.beside import Beside
from farm.store.maintenance.partitions import make_partitions, missing_days

_EVERY_S = 3600.0
_AGAIN_AFTER_S = 60.0  # where something was left to do


def housekeeping(engine: Engine) -> Beside:
    """Return the thread for it: nobody must wait for the locks that this needs."""

    def work() -> float:
        return _EVERY_S if keep_house(engine) else _AGAIN_AFTER_S

    return Beside("housekeeping", work, again_after_s=_AGAIN_AFTER_S)


def keep_house(engine: Engine) -> bool:
    """Do what is due; False if something is left for a better moment."""
    today = dt.datetime.now(dt.UTC).date()
    make_partitions(engine, today=today)
    return not missing_days(engine, today=today)
