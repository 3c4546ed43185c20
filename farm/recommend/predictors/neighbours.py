"""A physical sum, corrected by what the nearest measurements on each axis were off by (`lines`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.cells import Cells, cells_of
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
        return FittedNeighbours(FittedPhysical(observations), cells_of(observations))


class FittedNeighbours:
    """`mean`: fitted to the same measurements."""

    def __init__(self, mean: FittedPhysical, cells: Cells) -> None:
        import numpy as np

        self._mean = mean
        self._lines = Lines(cells, cells.logs - np.log(mean.times_s(cells.configurations)))

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._mean.known, configurations, equally_doubtful(self._times_s))

    def log_errors(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return what ln(sum) of each plain configuration (`features.plain`) is too small by."""
        return self._lines.log_errors(configurations)

    def _times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        import numpy as np

        asked = [plain(c) for c in configurations]
        times_s: NDArray[np.float64] = self._mean.times_s(asked) * np.exp(self.log_errors(asked))
        return times_s
