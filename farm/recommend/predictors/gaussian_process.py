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
from farm.recommend.features import Known, plain
from farm.recommend.predictors.cells import cells_of, spread
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.kernel import Component, Distances, Frame, Kernel
from farm.recommend.predictors.physical import PARTS, FittedPhysical

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
_FIRST_STEPS, _NEXT_STEPS = 25, 8
_JITTER = 1e-9
# Learning costs this number's cube, many times over: of more configurations so many are taken.
_MOST_LEARNED = 300


class GaussianProcess:
    """The physical sum with one Gaussian process; `components` make its kernel."""

    def __init__(self, name: str, components: Sequence[Component]) -> None:
        self.name = name
        self._components = tuple(components)

    def fit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        return FittedGaussianProcess(self._components, FittedPhysical(observations), observations)


class FittedGaussianProcess:
    """`mean`: fitted to the same observations. `parameters`: of the kernel and, last, ln of the
    noise; None: learn them.
    """

    def __init__(
        self,
        components: Sequence[Component],
        mean: FittedPhysical,
        observations: Sequence[Observation],
        *,
        parameters: NDArray[np.float64] | None = None,
    ) -> None:
        import numpy as np

        self._known = Known.of(observations)
        self._components = tuple(components)
        self._mean = mean
        self.parameters = parameters
        if not observations:
            return
        cells = cells_of(observations)
        self._frame = Frame.of(cells.configurations)
        self._kernel = Kernel(components, self._frame)
        parts_s = mean.parts_s(cells.configurations)
        self._points = self._frame.points(cells.configurations, _shares(parts_s))
        residual = cells.logs - np.log(mean.times_of(parts_s))
        trust = cells.weights
        for i in range(_ROUNDS):
            if parameters is None:
                self.parameters = self._learn(residual, trust, self.parameters)
            assert self.parameters is not None
            noise = math.exp(2 * self.parameters[-1])
            if parameters is None or i == 0:
                known = self._kernel.between(self.parameters[:-1], self._points, self._points)
            self._inverse = np.linalg.inv(known + np.diag(noise / trust + _JITTER))
            self._weights = self._inverse @ residual
            # What all the others say of each, and how sure they are (leave-one-out, closed form).
            variance = 1 / np.diag(self._inverse)
            left_out = self._weights * variance
            surprise = left_out**2 / np.maximum(variance - noise / trust + noise, _JITTER)
            trust = cells.weights * np.minimum(1.0, (_FREEDOM + 1) / (_FREEDOM + surprise))

    def refit(self, observations: Sequence[Observation]) -> FittedGaussianProcess:
        """Fit to other observations with the parameters of these."""
        return self.corrected(FittedPhysical(observations), observations)

    def corrected(
        self, mean: FittedPhysical, observations: Sequence[Observation]
    ) -> FittedGaussianProcess:
        """Correct a sum that was fitted to other observations with the parameters of these."""
        return FittedGaussianProcess(
            self._components, mean, observations, parameters=self.parameters
        )

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        import numpy as np

        why = [self._known.why_unknown(c) for c in configurations]
        asked = [c for c, reason in zip(configurations, why, strict=True) if reason is None]
        if asked:
            means, deviations = self.logs(asked, with_deviation=True)
        found = iter(range(len(asked)))
        return [
            PointEstimate(step_time_s=None, unknown_because=reason)
            if reason is not None
            else PointEstimate(
                step_time_s=float(np.exp(means[i := next(found)])), log_scale=float(deviations[i])
            )
            for reason in why
        ]

    def logs(
        self, configurations: Sequence[Configuration], *, with_deviation: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of ln(time) of each and, if asked for, its standard deviation."""
        import numpy as np

        asked = [plain(c) for c in configurations]
        parts = self._mean.parts_s(asked)
        points = self._frame.points(asked, _shares(parts))
        assert self.parameters is not None
        cross = self._kernel.between(self.parameters[:-1], points, self._points)
        means = np.log(self._mean.times_of(parts)) + cross @ self._weights
        if not with_deviation:
            return means, np.zeros(len(means))
        variances = self._kernel.variances(self.parameters[:-1], points)
        variances = variances - np.sum((cross @ self._inverse) * cross, axis=1)
        noise = math.exp(2 * self.parameters[-1])
        return means, np.sqrt(np.maximum(variances, 0.0) + noise)

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
            covariance, gradient = self._kernel.with_gradient(parameters[:-1], distances)
            noise = math.exp(2 * parameters[-1]) * doubt
            found = _likelihood(covariance, gradient, noise, target)
            away = (parameters - prior) / _PARAMETER_DEVIATION
            return found[0] + 0.5 * float(away @ away), found[1] + away / _PARAMETER_DEVIATION

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


def _likelihood(
    covariance: NDArray[np.float64],
    gradient: Sequence[NDArray[np.float64]],
    noise: NDArray[np.float64],
    target: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """Return the negative logarithm of the likelihood, but for a constant, and its gradient."""
    import numpy as np
    from scipy.linalg import lapack

    factor, info = lapack.dpotrf(covariance + np.diag(noise + _JITTER), lower=1, clean=1)
    assert info == 0, "a covariance with noise on its diagonal is positive definite"
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ target
    value = 0.5 * float(target @ weights) + float(np.sum(np.log(np.diag(factor))))
    change = 0.5 * (inverse - np.outer(weights, weights))
    slopes = [float(np.vdot(change, part)) for part in gradient]
    slopes.append(float(np.sum(np.diag(change) * 2 * noise)))
    return value, np.array(slopes)


def _shares(parts_s: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    total = np.sum(parts_s, axis=1, keepdims=True)
    shares: NDArray[np.float64] = parts_s / np.where(total > 0, total, 1.0)
    return shares
