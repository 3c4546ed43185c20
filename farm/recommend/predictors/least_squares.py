"""Robust least squares with coefficients of at least 0.

Rows are measurements, their terms divided by the measured time, so 1 is a perfect fit and errors
are relative. Each coefficient is drawn to a target, as strongly as `pull` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.statistics import NORMAL_SCALE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TUNING = 1.5  # standard deviations; Huber's k has the efficiency of 96 % on normal errors
_ROUNDS, _SCALING_ROUNDS = 4, 3
_LEAST_SPREAD = 0.01  # of relative errors: below it nobody is an outlier
_MOST_STEPS = 100  # for each coefficient
LEAST_RATIO = 1e-3  # of a fitted to a measured time, so that its logarithm exists


@dataclass(frozen=True, slots=True)
class Rows:
    """Terms over times, (m, n_terms), and how much each measurement counts, (m,)."""

    terms: NDArray[np.float64]
    weights: NDArray[np.float64]

    def scaled(self, factors: NDArray[np.float64]) -> Rows:
        return Rows(self.terms * factors[:, None], self.weights)


@dataclass(frozen=True, slots=True)
class Prior:
    """Where each coefficient is without measurements, and how strongly it is drawn there."""

    target: NDArray[np.float64]
    pull: NDArray[np.float64]


def robust(rows: Rows, prior: Prior) -> NDArray[np.float64]:
    """Minimise sum w_i rho(1 - terms_i c) + sum (pull_j (c_j - target_j))^2 over c >= 0.

    rho is that of Huber 1964, iteratively reweighted. Terms that no row has keep the target.
    """
    import numpy as np

    trust = rows.weights
    for _ in range(_ROUNDS):
        found = _solve(Rows(rows.terms, trust), prior)
        ratio = np.maximum(rows.terms @ found, LEAST_RATIO)
        error = np.abs(np.log(ratio))
        spread = max(NORMAL_SCALE * float(np.median(error)), _LEAST_SPREAD)
        outlying = _TUNING * spread / np.maximum(error, _TUNING * spread)
        # Relative errors are bounded below and not above; this makes both sides weigh the same.
        trust = rows.weights * outlying / np.maximum(ratio, 1 / 3)
    return found


def scales(rows: Rows, prior: Prior, children: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return by what each row's terms are multiplied, one number for all rows of a child.

    What is special differs in scale first: the backward pass takes some multiple of the forward
    one everywhere. Then what is common is the shape, and one child's outlier may be a law of all.
    """
    import numpy as np

    factors = np.ones(len(rows.terms))
    groups = [np.array([c == child for c in children]) for child in dict.fromkeys(children)]
    if len(groups) < 2:
        return factors
    for _ in range(_SCALING_ROUNDS):
        scaled = rows.scaled(factors)
        fitted = scaled.terms @ _solve(scaled, prior)
        for own in groups:
            factors[own] /= median(fitted[own], rows.weights[own])
        factors /= np.exp(np.average(np.log(factors), weights=rows.weights))
    return factors


def median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the weighted median of times relative to measured ones, not too close to 0."""
    import numpy as np

    order = np.argsort(values, kind="stable")
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return max(float(values[order][half]), LEAST_RATIO)


def nonnegative(
    system: NDArray[np.float64], target: NDArray[np.float64], *, most_steps: int | None = None
) -> NDArray[np.float64]:
    """Minimise |system c - target| over c >= 0; no column of the system is 0.

    Each step of the method adds a coefficient to those above 0 or takes one away. Terms that are
    alike, of very different sizes, take many more than SciPy's three for each coefficient; where
    they go in circles an interior method answers after `most_steps`, less exactly.
    """
    import numpy as np
    from scipy.optimize import lsq_linear, nnls

    steps = most_steps or _MOST_STEPS * system.shape[1]
    try:
        found: NDArray[np.float64] = nnls(system, target, maxiter=steps)[0]
    except RuntimeError:
        sizes = np.linalg.norm(system, axis=0)
        found = lsq_linear(system / sizes, target, bounds=(0, np.inf)).x / sizes
    return found


def _solve(rows: Rows, prior: Prior) -> NDArray[np.float64]:
    import numpy as np

    coefficients = prior.target.copy()
    used = np.any(rows.terms > 0, axis=0)
    root = np.sqrt(rows.weights)
    system = np.vstack([rows.terms[:, used] * root[:, None], np.diag(prior.pull[used])])
    target = np.concatenate([root, (prior.pull * prior.target)[used]])
    coefficients[used] = nonnegative(system, target)
    return coefficients
