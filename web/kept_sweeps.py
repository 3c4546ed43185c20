"""Sweeps as they were read last, kept until they change."""

from __future__ import annotations

import dataclasses

from sqlalchemy.orm import Session

from farm.figures.sweep_reading import SweepReading, read_sweep
from farm.recommend.prices import Prices
from farm.store.cell_rows import cells_stamp
from web.kept import Kept


def kept_reading(kept: Kept, session: Session, sweep_id: int, *, prices: Prices) -> SweepReading:
    """Return a sweep as the session sees it, from what is kept of it. Mutates `kept`.

    Raises:
        NotFound: there is no such sweep.
    """
    stamp = cells_stamp(session, sweep_id)

    def read(before: SweepReading | None) -> SweepReading:
        found = read_sweep(session, sweep_id, prices=prices, before=before)
        return dataclasses.replace(found, stamp=stamp)

    return kept.of(sweep_id, read, is_good=lambda made: made.value.stamp == stamp)
