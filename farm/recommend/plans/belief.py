"""Joint normal distribution of predicted step times, and the regret of choosing by it.

A predictor gives the step time of each configuration. A plan also needs to know how much a
measurement of one configuration says about another: the covariance that this module computes. The
means come from the predictor, if there is one. Pure; all times are natural logarithms of seconds.

The expected regret is estimated by drawing possible true times. In each draw the choice is made by
the means alone, and its regret is known. A planned measurement yields the drawn value plus
measurement noise, and updates the means as a real measurement would.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import (
    COMPUTE_NAMES,
    NETWORK_NAMES,
    Configuration,
    Observation,
)
from farm.recommend.evaluating.questions import Positions
from farm.recommend.features import LIMIT_CONDITIONS, amount
from farm.recommend.predictors.contracts import FittedPredictor
from farm.recommend.predictors.least_squares import nonnegative

Array = NDArray[np.float64]

# One measurement's own error of ln(time). Repetitions of one cell of Graur's thesis differ by 2 %
# in the median and by more than 10 % in 3 of 12.
_NOISE_LOG = 0.03
# How far a coefficient of the physical mean may be off, in ln: in common, and of one world size.
_COEFFICIENT_LOG = 0.7
_WIDTH_LOG = 0.4
# How far a step time may be off the physical mean, and over what distances that changes.
_RESIDUAL_LOG = 0.2
_DELAYED_LOG = 0.4  # on top, for the widest gang at the longest delay
_BATCH_LENGTH = 3.0  # in ln(global batch size), and in ln(bandwidth)
_WIDTH_LENGTH = 0.7  # in ln(machines)
_CONDITION_LENGTH = 0.5  # as a share of the largest delay, jitter or packet loss
_NO_LIMIT = 1e11  # bytes per second: far beyond any link
# Without a single measurement nothing says whether a step takes milliseconds or minutes.
_SCALE_LOG = 2.0
# What remains in common when a name (strategy, network, framework ...) differs.
_OTHER_NAME_RATIO = 0.5
_RIDGE = 0.1  # of the fit of the coefficients, against equal shares of the middle of the grid
_LEAST_SHARE = 0.02  # of a coefficient, of its share there: what was fitted to 0 may still not be 0
_LOCAL_COUNT = 2  # of the terms, those of one machine
_ROUNDS = 8
_LONGEST_STEP = 1.0  # of ln(coefficient) in one round
_PRIOR_COUNT = 5.0  # measurements that the assumed errors above are worth

DRAW_COUNT = 256
# A single choice is not held to cost more than three times the best more than it: with little
# known, a few wild truths would else outweigh all others.
MOST_REGRET_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class Belief:
    """Jointly normal ln(step time) of n configurations.

    `mean`: (n,); `covariance`: (n, n), of the times themselves, to which one more measurement of
    configuration i adds `noise_log` as its own error.
    """

    mean: Array
    covariance: Array
    noise_log: float = _NOISE_LOG


def believe(
    observations: Sequence[Observation],
    configurations: Sequence[Configuration],
    *,
    fitted: FittedPredictor | None = None,
) -> Belief:
    """Return the belief about the configurations from the observations, in their order.

    The prior is a sum of physical terms, t(x) = sum_j c_j phi_j(x), see `physical_terms`, whose
    coefficients are known to a factor, and a smooth residual of ln t. To first order an error d
    of ln c_j changes ln t by w_j(x) d, where w_j = c_j phi_j / t is the term's share; so the
    errors of two configurations go along by how alike their shares are. `fitted` replaces the
    means where it knows one.
    """
    together = [*configurations, *(o.configuration for o in observations)]
    count = len(configurations)
    logs = np.log([o.step_time_s for o in observations])
    terms = physical_terms(together)
    parts = terms * _coefficients(terms[count:], logs, scale=_middle(terms))
    noise = _NOISE_LOG**2 / np.maximum([o.weight for o in observations], 1e-3)
    mean, covariance = _posterior(parts, _kernels(together), logs, noise)
    if fitted is not None:
        for i, estimate in enumerate(fitted.predict(configurations)):
            if estimate.step_time_s is not None:
                mean[i] = math.log(estimate.step_time_s)
    return Belief(mean=mean, covariance=covariance)


def physical_terms(configurations: Sequence[Configuration]) -> Array:
    """Return what a step's time is made of, without the coefficients: (n, terms), without units.

    In order: a constant; the examples of one replica (compute); for gangs of m machines log2(m)
    messages one after another; the bytes of a ring, 2 (n - 1) / n of the gradients (Patarasuk and
    Yuan 2009), or n / servers through parameter servers. For each condition of the network: the
    bytes over a limit; the messages times a delay (a ring took 2, 3.5 and 4 round trips at 2, 3 and
    4 ranks, which 2 log2(m) follows), a jitter or a share of lost packets. Terms that no
    configuration has are left out.
    """
    rows = []
    for c in configurations:
        doublings = math.log2(c.machine_count)
        n = c.world_size
        volume = n / c.server_count if c.server_count else 2 * (n - 1) / n
        waiting = [
            (volume if name in LIMIT_CONDITIONS else doublings) * amount(name, value)
            if value
            else 0.0
            for name, value in c.by_field.items()
        ]
        rows.append((1.0, c.per_replica_batch_size, doublings, volume, *waiting))
    terms = np.array(rows)
    return terms[:, terms.max(axis=0) > 0]


@dataclass(frozen=True, slots=True)
class _Kernels:
    """How errors go along before anything is measured, each (n, n): of ln(coefficient) of the terms
    of one machine, of those of the network, and of the residual of ln(time)."""

    local: Array
    remote: Array
    residual: Array

    def covariance(self, shares: Array) -> Array:
        """Return that of ln(time), where terms have those shares of it: (n, terms)."""
        local = shares[:, :_LOCAL_COUNT] @ shares[:, :_LOCAL_COUNT].T
        remote = shares[:, _LOCAL_COUNT:] @ shares[:, _LOCAL_COUNT:].T
        total: Array = local * self.local + remote * self.remote + self.residual
        return total


def _kernels(configurations: Sequence[Configuration]) -> _Kernels:
    machines = np.log([c.machine_count for c in configurations])
    apart = np.abs(machines[:, None] - machines[None, :])
    coefficient = _COEFFICIENT_LOG**2 + _WIDTH_LOG**2 * np.exp(-apart / _WIDTH_LENGTH)
    compute = _OTHER_NAME_RATIO ** _differences(configurations, COMPUTE_NAMES)
    exchanged = (*NETWORK_NAMES, "server_count")
    everything = compute * _OTHER_NAME_RATIO ** _differences(configurations, exchanged)
    residual = _residual_logs(configurations)
    return _Kernels(
        local=coefficient * compute,
        remote=coefficient * everything,
        residual=np.outer(residual, residual) * _smooth(configurations) * everything,
    )


def _differences(configurations: Sequence[Configuration], names: Sequence[str]) -> Array:
    """Count the names in which two configurations differ: (n, n)."""
    count: Array = np.zeros((len(configurations), len(configurations)))
    for name in names:
        values = [repr(getattr(c, name)) for c in configurations]
        _, codes = np.unique(values, return_inverse=True)
        count += codes[:, None] != codes[None, :]
    return count


def _residual_logs(configurations: Sequence[Configuration]) -> Array:
    """Return how far each may be off the physical mean; furthest for wide gangs on slow networks.

    There windows, buffers and lost packets decide, of which the terms know nothing.
    """
    machines = np.log([c.machine_count for c in configurations])
    delays_s = np.array([c.one_way_delay_s for c in configurations])
    widest, longest_s = machines.max() or 1.0, delays_s.max() or 1.0
    reach = np.sqrt(delays_s / longest_s) * machines / widest
    logs: Array = np.hypot(_RESIDUAL_LOG, _DELAYED_LOG * reach)
    return logs


def _smooth(configurations: Sequence[Configuration]) -> Array:
    """Return the correlation of residuals by distance on all axes: (n, n)."""
    places = [
        np.log([c.global_batch_size for c in configurations]) / _BATCH_LENGTH,
        np.log([c.machine_count for c in configurations]) / _WIDTH_LENGTH,
    ]
    for name in CONDITIONS:
        given = [getattr(c, name) for c in configurations]
        if name in LIMIT_CONDITIONS:
            places.append(np.log([value or _NO_LIMIT for value in given]) / _BATCH_LENGTH)
        else:
            values = np.array(given)
            places.append(values / (values.max() or 1.0) / _CONDITION_LENGTH)
    squares = sum((place[:, None] - place[None, :]) ** 2 for place in places)
    # Matern with nu = 3/2: a time has kinks where a network's buffer overflows.
    distance: Array = np.sqrt(3 * squares)
    smooth: Array = (1 + distance) * np.exp(-distance)
    return smooth


def _middle(terms: Array) -> Array:
    """Return the coefficients with which every term weighs the same in the middle of the grid."""
    return np.array([1 / np.median(column[column > 0]) for column in terms.T])


def _coefficients(terms: Array, logs: Array, *, scale: Array) -> Array:
    """Fit coefficients of at least 0 to relative errors; what is not known stays near `scale`."""
    if not len(logs):
        return scale
    rows = terms * scale / np.exp(logs)[:, None]
    equal_share = np.exp(np.median(logs)) / len(scale)
    system = np.vstack([rows, _RIDGE * np.eye(len(scale)) / equal_share])
    target = np.concatenate([np.ones(len(logs)), np.full(len(scale), _RIDGE)])
    solution = nonnegative(system, target)
    fitted: Array = np.maximum(solution, _LEAST_SHARE * equal_share) * scale
    return fitted


def _posterior(parts: Array, kernels: _Kernels, logs: Array, noise: Array) -> tuple[Array, Array]:
    """Take in the measurements of the last rows; return mean and covariance of the others.

    `parts`: (n, terms), of the prior's time. The logarithm of a sum is not linear in those of its
    terms, so it is linearised where the last round's coefficients are, until these stay (the
    iterated extended Kalman filter, Bell and Cathey 1993).
    """
    known = slice(len(parts) - len(logs), None)
    errors = np.zeros_like(parts)  # of ln(coefficient)
    for _ in range(_ROUNDS if len(logs) else 1):
        now = parts * np.exp(errors)
        times = now.sum(axis=1)
        shares = now / times[:, None]
        covariance = kernels.covariance(shares)
        expected = np.log(times) - (shares * errors).sum(axis=1)
        if not len(logs):
            return expected, covariance + _SCALE_LOG**2
        factor = cho_factor(covariance[known, known] + np.diag(noise))
        news = cho_solve(factor, logs - expected[known])
        weighed = shares[known] * news[:, None]
        local = kernels.local[:, known] @ weighed[:, :_LOCAL_COUNT]
        remote = kernels.remote[:, known] @ weighed[:, _LOCAL_COUNT:]
        step = np.hstack([local, remote]) - errors
        errors += np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
    others = slice(0, len(parts) - len(logs))
    cross = covariance[others, known]
    # Larger errors than assumed widen all that is believed; smaller ones narrow nothing, since the
    # coefficients were fitted to the same values.
    surprise = float((logs - expected[known]) @ news)
    spread = max(1.0, (_PRIOR_COUNT + surprise) / (_PRIOR_COUNT + len(logs)))
    posterior = covariance[others, others] - cross @ cho_solve(factor, cross.T)
    return expected[others] + cross @ news, posterior * spread


@dataclass(frozen=True, slots=True)
class ExpectedRegret:
    """`truths` and `means`: ln(time x factor), (draws, n); `noise`: (draws, n), as ln.

    `options`: (most options, choices), positions of those that may be best; a shorter choice
    repeats its first option.
    `losses`: (most options, draws, choices), the regret of choosing that option in that truth.
    `covariance`: (n, n), of what is still unknown, the same in every draw.
    """

    truths: Array
    means: Array
    noise: Array
    covariance: Array
    noise_log: float
    options: NDArray[np.intp]
    losses: Array


def expected_regret(
    belief: Belief, choices: Sequence[Positions], *, log_factors: Array, seed: int
) -> ExpectedRegret:
    """Draw possible truths; `log_factors`: (n,), see `Candidate.objective_factor`."""
    generator = np.random.default_rng(seed)
    count = len(belief.mean)
    # Each draw with its mirror image: their mean is the belief's, at half the draws.
    half = generator.standard_normal((DRAW_COUNT // 2, count))
    normal = np.vstack([half, -half])
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    means = np.tile(belief.mean + log_factors, (DRAW_COUNT, 1))
    truths = means + normal @ root.T
    rivals = [_rivals(np.array(choice), means[0], truths) for choice in choices]
    widest = max((len(choice) for choice in rivals), default=1)
    padded = [[*choice, *[choice[0]] * (widest - len(choice))] for choice in rivals]
    options = np.array(padded, dtype=np.intp).reshape(len(choices), widest).T
    times = np.stack([truths[:, row] for row in options])
    return ExpectedRegret(
        truths=truths,
        means=means,
        noise=belief.noise_log * generator.standard_normal((DRAW_COUNT, count)),
        covariance=belief.covariance,
        noise_log=belief.noise_log,
        options=options,
        losses=np.minimum(np.expm1(times - times.min(axis=0)), MOST_REGRET_RATIO),
    )


def _rivals(choice: NDArray[np.intp], mean: Array, truths: Array) -> list[int]:
    """Return the options that are best in one truth at least, or seem to be; others only cost."""
    best = {int(choice[mean[choice].argmin()]), *choice[truths[:, choice].argmin(axis=1)].tolist()}
    return [int(i) for i in choice if i in best]


def regret_ratios(future: ExpectedRegret) -> Array:
    """Return the expected regret of each choice, true time of the chosen / best - 1: (choices,)."""
    return _regret_ratios(future, [future.means[:, row] for row in future.options])


def regret_ratios_after(future: ExpectedRegret, positions: Sequence[int]) -> Array:
    """Return the same once one of the positions is measured: (positions, choices)."""
    means = [future.means[:, row] for row in future.options]
    after = np.empty((len(positions), future.options.shape[1]))
    for i, position in enumerate(positions):
        gain, surprise = _update(future, position)
        moved = [m + surprise * gain[row] for m, row in zip(means, future.options, strict=True)]
        after[i] = _regret_ratios(future, moved)
    return after


def measured(future: ExpectedRegret, position: int) -> ExpectedRegret:
    """Return the regret once that configuration is measured, in each of the truths."""
    gain, surprise = _update(future, position)
    return dataclasses.replace(
        future,
        means=future.means + surprise * gain,
        covariance=future.covariance - np.outer(gain, future.covariance[position]),
    )


def _update(future: ExpectedRegret, position: int) -> tuple[Array, Array]:
    """Return how a belief follows one more value, (n,), and the news in it, (draws, 1)."""
    column = future.covariance[:, position]
    gain: Array = column / (column[position] + future.noise_log**2)
    seen = future.truths[:, position] + future.noise[:, position]
    surprise: Array = (seen - future.means[:, position])[:, None]
    return gain, surprise


def _regret_ratios(future: ExpectedRegret, means: Sequence[Array]) -> Array:
    """`means`: of each option, (draws, choices). The least is chosen, the first of equal ones."""
    # Comparing option by option is ten times as fast as an argmin over a short axis.
    best, loss = means[0], future.losses[0]
    for other, other_loss in zip(means[1:], future.losses[1:], strict=True):
        is_less = other < best
        best = np.where(is_less, other, best)
        loss = np.where(is_less, other_loss, loss)
    mean: Array = loss.mean(axis=0)
    return mean
