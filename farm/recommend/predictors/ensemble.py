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
from farm.recommend.predictors.columns import FeatureColumns, cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import estimates
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH
from farm.recommend.predictors.gaussian_process_fit import GaussianProcessFit
from farm.recommend.predictors.kernel import Kernel
from farm.recommend.predictors.lines import Lines
from farm.recommend.predictors.monotone import Monotone
from farm.recommend.predictors.physical import FittedPhysical
from farm.recommend.predictors.points import Frame

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ensemble:
    name = "ensemble"

    def fit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        return FittedEnsemble(observations)


class FittedEnsemble:
    """`like`: one whose processes' parameters are kept; None: learn them."""

    def __init__(
        self, observations: Sequence[Observation], *, like: FittedEnsemble | None = None
    ) -> None:
        import numpy as np

        self._physical = FittedPhysical(observations)
        cells = cells_of(observations)
        if not cells.configurations:
            return
        self._frame: Frame = Frame.of(cells.columns) if like is None else like._frame
        parts_s = self._physical.parts_s(cells.columns)
        points = self._frame.points(cells.columns, parts_s)
        errors = cells.logs - self._physical.logs_of(parts_s)
        self._processes: list[GaussianProcessFit] = (
            [
                GaussianProcessFit(
                    Kernel(components, self._frame), points, errors, weights=cells.weights
                )
                for components in (SMOOTH, BY_PART)
            ]
            if like is None
            else [
                process.refit(points, errors, weights=cells.weights) for process in like._processes
            ]
        )
        self._neighbours = Lines(cells, errors)
        own = [process.own_log_errors for process in self._processes]
        own.append(self._neighbours.log_errors(cells.columns))
        self._rest = Lines(cells, errors - np.median(own, axis=0), only_conditions=True)
        self._monotone = Monotone(cells)

    def refit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        """Fit to a part of the observations; how smooth errors are is kept."""
        return FittedEnsemble(observations, like=self)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, self._answers)

    def _answers(self, columns: FeatureColumns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        times_s = self._monotone.times_s(columns, self._corrected_s, self._physical.times_s)
        return times_s, self._scales(columns)

    def _corrected_s(
        self, columns: FeatureColumns
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is made monotone, and the physical sum."""
        import numpy as np

        parts_s = self._physical.parts_s(columns)
        points = self._frame.points(columns, parts_s)
        errors = [process.log_errors(points) for process in self._processes]
        errors.append(self._neighbours.log_errors(columns))
        sums_s = self._physical.times_of(parts_s)
        log_errors = np.median(errors, axis=0) + self._rest.log_errors(columns)
        return sums_s * np.exp(log_errors), sums_s

    def _scales(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return how unsure each process is and how far the members are apart, in ln(time)."""
        import numpy as np

        points = self._frame.points(columns, self._physical.parts_s(columns))
        normals = [process.normals(points) for process in self._processes]
        near = self._neighbours.log_errors(columns)
        apart = np.std([*(errors for errors, _ in normals), near], axis=0)
        own = np.mean([deviations**2 for _, deviations in normals], axis=0)
        scales: NDArray[np.float64] = np.sqrt(own + apart**2)
        return scales
