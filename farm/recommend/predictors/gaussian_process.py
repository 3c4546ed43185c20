"""A physical sum, corrected by a Gaussian process of its errors in ln(time).

The errors of a sum with few terms are smooth in world size, batch and conditions, and alike for
what has the same names; how smooth and how alike is learned from the measurements (`process`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.columns import FeatureColumns, cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import estimates
from farm.recommend.predictors.gaussian_process_fit import GaussianProcessFit
from farm.recommend.predictors.kernel import Component, Kernel
from farm.recommend.predictors.physical import FittedPhysical
from farm.recommend.predictors.points import Frame
from farm.recommend.predictors.terms import PARTS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Errors of the sum as a whole, for a curve of its own and in common to all.
SMOOTH = (
    Component(
        deviation=0.2,
        lengths={"world_size": 2.0, "batch": 3.0, "condition": 1.0, "servers": 2.0},
        smoothness=2.5,
        name_distance=0.5,
    ),
    Component(
        deviation=0.1,
        lengths={"world_size": 2.0, "batch": 3.0, "condition": 1.0, "servers": 2.0},
        smoothness=2.5,
        name_distance=None,
    ),
)
# Errors of the coefficients of each part, by world size and names, and a rough rest.
BY_PART = (
    *(
        Component(
            deviation=0.3,
            lengths={"world_size": 2.0, "servers": 2.0},
            smoothness=1.5,
            name_distance=0.5,
            part=part,
        )
        for part in range(len(PARTS))
    ),
    Component(
        deviation=0.2,
        lengths={"world_size": 2.0, "batch": 4.0, "condition": 1.0, "servers": 2.0},
        smoothness=1.5,
        name_distance=0.5,
    ),
)


class GaussianProcess:
    """The physical sum with one Gaussian process; `components` make its kernel."""

    def __init__(self, name: str, components: Sequence[Component]) -> None:
        self.name = name
        self._components = tuple(components)

    def fit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        return FittedGaussianProcess(observations, self._components)


class FittedGaussianProcess:
    """`like`: one whose parameters are kept, such as one fitted to more measurements; None: learn
    them.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        components: Sequence[Component],
        *,
        like: FittedGaussianProcess | None = None,
    ) -> None:
        self._components = tuple(components)
        self._physical = FittedPhysical(observations)
        cells = cells_of(observations)
        if not cells.configurations:
            return
        # Parameters have a meaning only for the features and names that they were learned for.
        self._frame: Frame = Frame.of(cells.columns) if like is None else like._frame
        parts_s = self._physical.parts_s(cells.columns)
        points = self._frame.points(cells.columns, parts_s)
        errors = cells.logs - self._physical.logs_of(parts_s)
        self._process: GaussianProcessFit = (
            GaussianProcessFit(
                Kernel(self._components, self._frame), points, errors, weights=cells.weights
            )
            if like is None
            else like._process.refit(points, errors, weights=cells.weights)
        )

    def refit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        """Fit to other observations with the parameters of these."""
        return FittedGaussianProcess(observations, self._components, like=self)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, self._answers)

    def _answers(self, columns: FeatureColumns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        import numpy as np

        parts_s = self._physical.parts_s(columns)
        errors, deviations = self._process.normals(self._frame.points(columns, parts_s))
        return np.exp(self._physical.logs_of(parts_s) + errors), deviations
