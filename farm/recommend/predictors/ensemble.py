"""The default: the median of three corrections of one physical sum, never faster with more of what
slows a step down.

Two Gaussian processes, one of the errors as a whole and one of the errors of each part of the sum,
and the errors of the nearest measurements. They are wrong in different places: the median keeps
out whichever is alone with its opinion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import Known, plain
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH, FittedGaussianProcess
from farm.recommend.predictors.monotone import Monotone
from farm.recommend.predictors.neighbours import FittedNeighbours
from farm.recommend.predictors.physical import FittedPhysical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ensemble:
    name = "ensemble"

    def fit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        fitted = FittedEnsemble(observations, kernels=None)
        fitted.prepare()
        return fitted


class FittedEnsemble:
    """`kernels`: processes whose parameters are kept; None: learn them."""

    def __init__(
        self,
        observations: Sequence[Observation],
        *,
        kernels: Sequence[FittedGaussianProcess] | None,
    ) -> None:
        self._known = Known.of(observations)
        self._measured = tuple(dict.fromkeys(plain(o.configuration) for o in observations))
        if not observations:
            return
        self._physical = FittedPhysical(observations)
        self._processes = (
            [FittedGaussianProcess(c, self._physical, observations) for c in (SMOOTH, BY_PART)]
            if kernels is None
            else [kernel.corrected(self._physical, observations) for kernel in kernels]
        )
        self._neighbours = FittedNeighbours(self._physical, observations)
        self._monotone = Monotone(self._measured)

    def refit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        """Fit to a part of the observations; how smooth errors are is kept."""
        return FittedEnsemble(observations, kernels=self._processes)

    def prepare(self) -> None:
        """Compute ahead what answers about measured curves and world sizes need."""
        if self._known.count:
            self._times_s(self._measured)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        import numpy as np

        why = [self._known.why_unknown(c) for c in configurations]
        asked = [c for c, reason in zip(configurations, why, strict=True) if reason is None]
        if asked:
            times_s, scales = self._times_s(asked), self._scales(asked)
        positions = np.cumsum([reason is None for reason in why]) - 1
        return [
            PointEstimate(step_time_s=float(times_s[i]), log_scale=float(scales[i]))
            if reason is None
            else PointEstimate(step_time_s=None, unknown_because=reason)
            for i, reason in zip(positions, why, strict=True)
        ]

    def _times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        return self._monotone.times_s(configurations, self._median_s, self._physical.times_s)

    def _median_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        import numpy as np

        logs = [process.logs(configurations)[0] for process in self._processes]
        near = np.log(self._neighbours.times_s(configurations))
        median: NDArray[np.float64] = np.exp(np.median([*logs, near], axis=0))
        return median

    def _scales(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return how unsure each process is and how far the members are apart, in ln(time)."""
        import numpy as np

        found = [p.logs(configurations, with_deviation=True) for p in self._processes]
        near = np.log(self._neighbours.times_s(configurations))
        apart = np.std([*(logs for logs, _ in found), near], axis=0)
        own = np.mean([deviations**2 for _, deviations in found], axis=0)
        scales: NDArray[np.float64] = np.sqrt(own + apart**2)
        return scales
