"""Predicts by the physical sum, and corrects its errors in ln(time) by a Gaussian process.

The errors of a sum with few terms are smooth in world size, batch and conditions, and similar for
configurations with the same names. How smooth and how similar is learned from the measurements.

Its parameters maximise the posterior density (Rasmussen and Williams 2006, chapter 5). Outliers
count less: errors are assumed to follow Student's t with `_FREEDOM` degrees of freedom. This is
done by reweighting each measurement by its distance from its prediction by all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.columns import FeatureColumns, cells_of, spread
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import estimates, use_one_thread
from farm.recommend.predictors.kernel import Component, Kernel
from farm.recommend.predictors.physical import PARTS, FittedPhysical
from farm.recommend.predictors.points import Distances, Frame, Points

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
# What is worked out at a time, so that it stays in a processor's cache.
_BLOCK = 128


class GaussianProcessFit:
    """Fitted to what the sum is off by at n points, each of which counts by its weight.

    `own_log_errors`: what it says of these points itself.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: Points,
        log_errors: NDArray[np.float64],
        *,
        weights: NDArray[np.float64],
        parameters: NDArray[np.float64] | None = None,
    ) -> None:
        """`parameters`: those of the kernel if they are known; None: learn them."""
        import numpy as np
        import scipy.linalg  # noqa: F401 # loaded before it is told how many threads to use

        use_one_thread()
        self._kernel, self._points = kernel, points
        trust, found = weights, parameters
        for i in range(_ROUNDS):
            if parameters is None:
                found = self._learn(log_errors, trust, found)
            assert found is not None
            self._parameters = found
            if parameters is None or i == 0:
                known = np.vstack([self._cross(block) for block in _blocks(points)])
            noise = self._noise / trust
            self._inverse, _ = _inverse(known, noise)
            self._weights = self._inverse @ log_errors
            # What all the others say of each, and how sure they are (leave-one-out, closed form).
            variance = 1 / np.diag(self._inverse)
            left_out = self._weights * variance
            surprise = left_out**2 / np.maximum(variance - noise + self._noise, _JITTER)
            trust = weights * np.minimum(1.0, (_FREEDOM + 1) / (_FREEDOM + surprise))
        self.own_log_errors = known @ self._weights

    @property
    def _noise(self) -> float:
        """The variance of ln(time) where a measurement is fully trusted."""
        return math.exp(2 * self._parameters[-1])

    def refit(
        self, points: Points, log_errors: NDArray[np.float64], *, weights: NDArray[np.float64]
    ) -> GaussianProcessFit:
        """Fit to other points of the same frame with the parameters of these."""
        return GaussianProcessFit(
            self._kernel, points, log_errors, weights=weights, parameters=self._parameters
        )

    def log_errors(self, points: Points) -> NDArray[np.float64]:
        """Return the mean error of each point in ln(time): (n_points,)."""
        import numpy as np

        return np.concatenate([self._cross(block) @ self._weights for block in _blocks(points)])

    def normals(self, points: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the same and the standard deviation of ln(time) of each point."""
        import numpy as np

        cross = self._cross(points)
        variances = self._kernel.variances(self._parameters[:-1], points)
        variances -= np.sum((cross @ self._inverse) * cross, axis=1)
        return cross @ self._weights, np.sqrt(np.maximum(variances, 0.0) + self._noise)

    def _cross(self, points: Points) -> NDArray[np.float64]:
        return self._kernel.between(self._parameters[:-1], points, self._points)

    def _learn(
        self,
        log_errors: NDArray[np.float64],
        trust: NDArray[np.float64],
        start: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        import numpy as np
        from scipy.optimize import minimize

        prior = np.append(self._kernel.start(), math.log(_NOISE))
        chosen = spread(len(log_errors), _MOST_LEARNED)
        points = self._points.at(chosen)
        distances = Distances.of(points, points)
        target, doubt = log_errors[chosen], 1 / trust[chosen]

        def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            known, slopes_of = self._kernel.with_slopes(parameters[:-1], distances)
            noise = math.exp(2 * parameters[-1]) * doubt
            inverse, half_log_determinant = _inverse(known, noise)
            weights = inverse @ target
            change = 0.5 * (inverse - np.outer(weights, weights))
            slopes = [*slopes_of(change), float(np.sum(np.diag(change) * 2 * noise))]
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


def _blocks(points: Points) -> list[Points]:
    starts = range(0, len(points), _BLOCK)
    return [points.at(slice(start, start + _BLOCK)) for start in starts]


def _inverse(
    covariances: NDArray[np.float64], noise: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the inverse of the covariances with noise on their diagonal, and half the logarithm of
    its determinant.
    """
    import numpy as np
    from scipy.linalg import lapack

    diagonal = np.diag_indices_from(covariances)
    noisy = covariances.copy()
    noisy[diagonal] += noise + _JITTER
    factor, info = lapack.dpotrf(noisy, lower=1, clean=1)
    assert info == 0, "a covariance with noise on its diagonal is positive definite"
    lower, _ = lapack.dpotri(factor, lower=1)  # above its diagonal are zeros
    inverse = lower + lower.T
    inverse[diagonal] /= 2
    return inverse, float(np.sum(np.log(np.diag(factor))))


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
