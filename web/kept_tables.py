"""The tables of cells of the sweeps that were looked at last, kept until something changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from farm.recommend.prices import Prices
from farm.store.cell_rows import cells_stamp
from web.sweep_table import SweepReading, SweepTable, read_sweep

_SWEEPS_KEPT = 8  # one of 5,000 cells is some 8 MB


@dataclass(slots=True)
class _Kept:
    """One sweep's. Its lock lets one viewer work while the others wait for what he finds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stamp: Hashable = None
    reading: SweepReading | None = None


class KeptTables:
    """Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def of_sweep(self, session: Session, sweep_id: int, *, prices: Prices) -> SweepTable:
        """Return the cells as the session sees them. Raises NotFound: there is no such sweep."""
        stamp = cells_stamp(session, sweep_id)
        kept = self._entry(sweep_id)
        with kept.lock:
            if kept.reading is not None and kept.stamp == stamp:
                return kept.reading.table
            kept.reading = read_sweep(session, sweep_id, prices=prices, before=kept.reading)
            kept.stamp = stamp
            return kept.reading.table

    def _entry(self, sweep_id: int) -> _Kept:
        with self._lock:
            entry = self._kept.setdefault(sweep_id, _Kept())
            self._kept.move_to_end(sweep_id)
            while len(self._kept) > _SWEEPS_KEPT:
                self._kept.popitem(last=False)
            return entry
