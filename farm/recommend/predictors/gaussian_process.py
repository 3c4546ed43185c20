"""A physical sum, corrected by a Gaussian process of its errors in ln(time).

The errors of a sum with few terms are smooth in world size, batch and conditions, and alike for
what has the same names; how smooth and how alike is learned from the measurements (the parameters
of the kernel with the greatest posterior density, Rasmussen and Williams 2006, chapter 5). Outliers
count less: errors are taken as Student's t with `_FREEDOM` degrees of freedom, by reweighting each
measurement by how far it is from what all others say of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.cells import Cells, cells_of, spread
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import estimates
from farm.recommend.predictors.kernel import Component, Kernel
from farm.recommend.predictors.physical import FittedPhysical
from farm.recommend.predictors.points import Distances, Frame, Points
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

_NOISE = 0.03  # of ln(time), where the fit starts: repetitions differ by 2 to 3 %
_PARAMETER_DEVIATION = 1.0  # of the logarithm of each parameter from where the fit starts
_PARAMETER_RANGE = 4.0
_FREEDOM = 1.0
_ROUNDS = 4
_FIRST_STEPS, _NEXT_STEPS = 25, 6
_JITTER = 1e-9
# Learning costs this number's cube, many times over: of more configurations so many are taken.
_MOST_LEARNED = 250


class GaussianProcess:
    """The physical sum with one Gaussian process; `components` make its kernel."""

    def __init__(self, name: str, components: Sequence[Component]) -> None:
        self.name = name
        self._components = tuple(components)

    def fit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        return FittedGaussianProcess(
            self._components, FittedPhysical(observations), cells_of(observations)
        )


class FittedGaussianProcess:
    """`mean`: fitted to the same measurements. `like`: a process whose kernel and parameters are
    kept, such as one fitted to more of them; None: learn the parameters.
    """

    def __init__(
        self,
        components: Sequence[Component],
        mean: FittedPhysical,
        cells: Cells,
        *,
        like: FittedGaussianProcess | None = None,
    ) -> None:
        import numpy as np

        self._components = tuple(components)
        self._mean = mean
        if not cells.configurations:
            return
        # Parameters have a meaning only for the features and names that they were learned for.
        self._frame: Frame = Frame.of(cells.configurations) if like is None else like._frame
        self._kernel: Kernel = Kernel(components, self._frame) if like is None else like._kernel
        self._parameters: NDArray[np.float64] | None = None if like is None else like._parameters
        parts_s = mean.parts_s(cells.configurations)
        self._points = self._frame.points(cells.configurations, _shares(parts_s))
        residual = cells.logs - np.log(mean.times_of(parts_s))
        trust = cells.weights
        for i in range(_ROUNDS):
            if like is None:
                self._parameters = self._learn(residual, trust, self._parameters)
            assert self._parameters is not None
            noise = math.exp(2 * self._parameters[-1])
            if like is None or i == 0:
                known = self._kernel.between(self._parameters[:-1], self._points, self._points)
            self._inverse, _ = _inverse(known + np.diag(noise / trust))
            self._weights = self._inverse @ residual
            # What all the others say of each, and how sure they are (leave-one-out, closed form).
            variance = 1 / np.diag(self._inverse)
            left_out = self._weights * variance
            surprise = left_out**2 / np.maximum(variance - noise / trust + noise, _JITTER)
            trust = cells.weights * np.minimum(1.0, (_FREEDOM + 1) / (_FREEDOM + surprise))

    def refit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        """Fit to other observations with the parameters of these."""
        return self.corrected(FittedPhysical(observations), cells_of(observations))

    def corrected(self, mean: FittedPhysical, cells: Cells) -> FittedGaussianProcess:
        """Correct a sum that was fitted to other measurements with the parameters of these."""
        return FittedGaussianProcess(self._components, mean, cells, like=self)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._mean.known, configurations, self._answers)

    def _answers(
        self, configurations: Sequence[Configuration]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        import numpy as np

        asked = [plain(c) for c in configurations]
        parts_s = self._mean.parts_s(asked)
        means, deviations = self.normals(asked, parts_s)
        return np.exp(means), deviations

    def logs(
        self, configurations: Sequence[Configuration], parts_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the mean of ln(time) of each plain configuration, of which the sum's parts are
        given: (n, len(PARTS)).
        """
        cross, _ = self._cross(configurations, parts_s)
        return self._means(cross, parts_s)

    def normals(
        self, configurations: Sequence[Configuration], parts_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation of ln(time) of each, likewise."""
        import numpy as np

        cross, points = self._cross(configurations, parts_s)
        assert self._parameters is not None
        variances = self._kernel.variances(self._parameters[:-1], points)
        variances = variances - np.sum((cross @ self._inverse) * cross, axis=1)
        noise = math.exp(2 * self._parameters[-1])
        return self._means(cross, parts_s), np.sqrt(np.maximum(variances, 0.0) + noise)

    def _means(
        self, cross: NDArray[np.float64], parts_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        import numpy as np

        means: NDArray[np.float64] = np.log(self._mean.times_of(parts_s)) + cross @ self._weights
        return means

    def _cross(
        self, configurations: Sequence[Configuration], parts_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Points]:
        points = self._frame.points(configurations, _shares(parts_s))
        assert self._parameters is not None
        return self._kernel.between(self._parameters[:-1], points, self._points), points

    def _learn(
        self,
        residual: NDArray[np.float64],
        trust: NDArray[np.float64],
        start: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        import numpy as np
        from scipy.optimize import minimize

        prior = np.append(self._kernel.start(), math.log(_NOISE))
        chosen = spread(len(residual), _MOST_LEARNED)
        distances = Distances.of(self._points.at(chosen), self._points.at(chosen))
        target, doubt = residual[chosen], 1 / trust[chosen]

        def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            known, parts = self._kernel.covariances(parameters[:-1], distances, with_slopes=True)
            noise = math.exp(2 * parameters[-1]) * doubt
            inverse, half_log_determinant = _inverse(known + np.diag(noise))
            weights = inverse @ target
            change = 0.5 * (inverse - np.outer(weights, weights))
            slopes = self._kernel.slopes(parts, distances, change)
            slopes.append(float(np.sum(np.diag(change) * 2 * noise)))
            away = (parameters - prior) / _PARAMETER_DEVIATION
            value = 0.5 * float(target @ weights) + half_log_determinant
            return value + 0.5 * float(away @ away), np.array(slopes) + away / _PARAMETER_DEVIATION

        result = minimize(
            loss,
            prior if start is None else start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(p - _PARAMETER_RANGE, p + _PARAMETER_RANGE) for p in prior],
            options={"maxiter": _FIRST_STEPS if start is None else _NEXT_STEPS},
        )
        best: NDArray[np.float64] = result.x
        return best


def _inverse(covariances: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the inverse and half the logarithm of the determinant."""
    import numpy as np
    from scipy.linalg import lapack

    covariances[np.diag_indices_from(covariances)] += _JITTER
    factor, info = lapack.dpotrf(covariances, lower=1, clean=1)
    assert info == 0, "a covariance with noise on its diagonal is positive definite"
    lower, _ = lapack.dpotri(factor, lower=1)  # above its diagonal are zeros
    inverse = lower + lower.T
    inverse[np.diag_indices_from(inverse)] /= 2
    return inverse, float(np.sum(np.log(np.diag(factor))))


def _shares(parts_s: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    total = np.sum(parts_s, axis=1, keepdims=True)
    shares: NDArray[np.float64] = parts_s / np.where(total > 0, total, 1.0)
    return shares
