"""Caches sweeps until they change."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.cells.comparison import SweepComparison, compare
from farm.cells.reading import SweepReading, read_sweep
from farm.cells.table import SweepTable
from farm.processes.cache import Cache
from farm.recommend.prices import Prices
from farm.store.measurements.cell_rows import cells_stamp

MOST_JOBS = 10_000  # of a sweep, summed up on pages, which say so


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    tokens: tuple[object, object]
    comparison: SweepComparison


def cached_reading(
    cache: Cache, session: Session, sweep_id: int, *, prices: Prices
) -> SweepReading:
    """Return a sweep as the session sees it, from what is kept of it. Mutates `cache`.

    Raises:
        NotFound: there is no such sweep.
    """
    stamp = cells_stamp(session, sweep_id)

    def read(before: SweepReading | None) -> SweepReading:
        found = read_sweep(session, sweep_id, prices=prices, before=before, max_jobs=MOST_JOBS)
        return dataclasses.replace(found, stamp=stamp)

    return cache.get(sweep_id, read, is_good=lambda made: made.value.stamp == stamp)


def cached_comparison(cache: Cache, key: Hashable, a: SweepTable, b: SweepTable) -> SweepComparison:
    """Hold two sweeps against each other, from what is kept of them by `key`. Mutates `cache`."""
    tokens = a.token, b.token

    def make(before: _Compared | None) -> _Compared:
        found = compare(a, b, before=None if before is None else before.comparison)
        return _Compared(tokens=tokens, comparison=found)

    return cache.get(key, make, is_good=lambda made: made.value.tokens == tokens).comparison
