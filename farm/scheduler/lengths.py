"""Background prediction of how long waiting jobs will run.

A thread reads the store every few seconds: the cells of unfinished jobs, how long gangs were at
work lately, and the recommender's predictions, which are fitted in another process. Placing only
looks the results up. If a refresh fails, the results of the one before stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from farm.configuration.spec import JobSpec
from farm.placement.progress import MeasuredLength, expected_lengths_s
from farm.scheduler.background_thread import BackgroundThread
from farm.store.engine import reading
from farm.store.gangs.lengths import cell_specs, last_lengths, unfinished_cells

if TYPE_CHECKING:
    from farm.recommend.cache.knowledge import RecommenderCache

_EVERY_S = 5.0
_JOBS_LOOKED_AT = 10_000  # as many as are placed at once
_LENGTHS_LOOKED_AT = 1000
_CELLS_PREDICTED = 500  # of those of which nothing was measured


class JobLengths:
    """By cell hash, in seconds. Written by its thread alone, which replaces the whole."""

    def __init__(self, engine: Engine, *, home: Path | None = None) -> None:
        self._engine = engine
        self._home = home
        self._cache: RecommenderCache | None = None
        # By cell hash. Reading them again would take longer than all the rest.
        self._specs: dict[str, JobSpec] = {}
        self.expected_s: Mapping[str, float] = {}

    def thread(self) -> BackgroundThread:
        """Return the thread that keeps them up to date."""

        def work() -> float:
            self.refresh()
            return _EVERY_S

        return BackgroundThread("job lengths", work, again_after_s=_EVERY_S)

    def refresh(self) -> None:
        """Read the store once."""
        with reading(self._engine) as session:
            ids = unfinished_cells(session, limit=_JOBS_LOOKED_AT)
            lasted = last_lengths(session, limit=_LENGTHS_LOOKED_AT) if ids else []
            wanted = {one.cell_hash: one.job_id for one in lasted} | ids
            new = cell_specs(session, [i for key, i in wanted.items() if key not in self._specs])
        specs = self._specs | new
        self._specs = {key: specs[key] for key in wanted if key in specs}
        cells = {key: self._specs[key] for key in ids if key in self._specs}
        measured = [
            MeasuredLength(
                cell_hash=one.cell_hash, spec=self._specs[one.cell_hash], length_s=one.length_s
            )
            for one in lasted
            if one.cell_hash in self._specs
        ]
        known = {one.cell_hash for one in measured}
        unknown = {key: spec for key, spec in cells.items() if key not in known}
        predicted_s = self._predict(dict(list(unknown.items())[:_CELLS_PREDICTED]))
        self.expected_s = expected_lengths_s(cells, measured=measured, predicted_s=predicted_s)

    def _predict(self, cells: Mapping[str, JobSpec]) -> Mapping[str, float]:
        if not cells or self._home is None:
            return {}
        # The recommender is imported only once there is something to ask it.
        from farm.recommend.cache.knowledge import RecommenderCache
        from farm.recommend.sweeps.expectation import predicted_lengths_s

        if self._cache is None:
            self._cache = RecommenderCache.of_server(self._home)
        with reading(self._engine) as session:
            return predicted_lengths_s(session, cells, cache=self._cache)
