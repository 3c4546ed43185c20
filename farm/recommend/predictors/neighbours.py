"""A physical sum, corrected by what the nearest measurements on each axis were off by (`lines`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.columns import FeatureColumns, cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import equally_doubtful, estimates
from farm.recommend.predictors.lines import Lines
from farm.recommend.predictors.physical import FittedPhysical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Neighbours:
    name = "neighbours"

    def fit(self, observations: Sequence[Observation]) -> FittedNeighbours:
        return FittedNeighbours(observations)


class FittedNeighbours:
    def __init__(self, observations: Sequence[Observation]) -> None:
        self._physical = FittedPhysical(observations)
        cells = cells_of(observations)
        parts_s = self._physical.parts_s(cells.columns)
        self._lines = Lines(cells, cells.logs - self._physical.logs_of(parts_s))

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, equally_doubtful(self._times_s))

    def _times_s(self, columns: FeatureColumns) -> NDArray[np.float64]:
        import numpy as np

        errors = self._lines.log_errors(columns)
        times_s: NDArray[np.float64] = self._physical.times_s(columns) * np.exp(errors)
        return times_s
