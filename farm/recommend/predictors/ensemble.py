"""The default: the median of three corrections of one physical sum, never faster with more of what
slows a step down.

Two Gaussian processes, one of the errors as a whole and one of the errors of each part of the sum,
and the errors of the nearest measurements. They are wrong in different places: the median keeps
out whichever is alone with its opinion. What the median is still off by at measurements that
differ in the network's conditions alone is interpolated between these (`lines`): a delay hides
behind a replica's work up to some point and costs in full beyond, which a smooth process takes for
an outlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.cells import cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import estimates
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH, FittedGaussianProcess
from farm.recommend.predictors.lines import Lines
from farm.recommend.predictors.monotone import Monotone
from farm.recommend.predictors.neighbours import FittedNeighbours
from farm.recommend.predictors.physical import FittedPhysical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ensemble:
    name = "ensemble"

    def fit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        return FittedEnsemble(observations, kernels=None)


class FittedEnsemble:
    """`kernels`: processes whose parameters are kept; None: learn them."""

    def __init__(
        self,
        observations: Sequence[Observation],
        *,
        kernels: Sequence[FittedGaussianProcess] | None,
    ) -> None:
        cells = cells_of(observations)
        self._physical = FittedPhysical(observations)
        self._processes = (
            [FittedGaussianProcess(c, self._physical, cells) for c in (SMOOTH, BY_PART)]
            if kernels is None
            else [kernel.corrected(self._physical, cells) for kernel in kernels]
        )
        self._neighbours = FittedNeighbours(self._physical, cells)
        median_logs, _ = self._medians(cells.configurations)
        self._rest = Lines(cells, cells.logs - median_logs, only_conditions=True)
        self._monotone = Monotone(cells.configurations)

    def refit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        """Fit to a part of the observations; how smooth errors are is kept."""
        return FittedEnsemble(observations, kernels=self._processes)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, self._answers)

    def _answers(
        self, configurations: Sequence[Configuration]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked = [plain(c) for c in configurations]
        return self._times_s(asked), self._scales(asked)

    def _times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        return self._monotone.times_s(configurations, self._corrected_s, self._physical.times_s)

    def _corrected_s(
        self, configurations: Sequence[Configuration]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is made monotone, and the physical sum, of plain configurations."""
        import numpy as np

        logs, sums_s = self._medians(configurations)
        return np.exp(logs + self._rest.log_errors(configurations)), sums_s

    def _medians(
        self, configurations: Sequence[Configuration]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the median of the members, of ln(time), and the physical sum in s."""
        import numpy as np

        if not configurations:
            return np.zeros(0), np.zeros(0)
        parts_s = self._physical.parts_s(configurations)
        logs = [process.logs(configurations, parts_s) for process in self._processes]
        near = self._near(configurations, parts_s)
        return np.median([*logs, near], axis=0), self._physical.times_of(parts_s)

    def _scales(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return how unsure each process is and how far the members are apart, in ln(time)."""
        import numpy as np

        parts_s = self._physical.parts_s(configurations)
        normals = [process.normals(configurations, parts_s) for process in self._processes]
        near = self._near(configurations, parts_s)
        apart = np.std([*(means for means, _ in normals), near], axis=0)
        own = np.mean([deviations**2 for _, deviations in normals], axis=0)
        scales: NDArray[np.float64] = np.sqrt(own + apart**2)
        return scales

    def _near(
        self, configurations: Sequence[Configuration], parts_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        import numpy as np

        logs: NDArray[np.float64] = np.log(self._physical.times_of(parts_s))
        return logs + self._neighbours.log_errors(configurations)
