"""Expected regret of the recommendation, before and after a planned measurement.

Possible true times are drawn from the belief. In each draw the choice is made by the means alone,
and its regret is known. A planned measurement yields the drawn value plus measurement noise, and
updates the means as a real measurement would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farm.recommend.evaluating.questions import Choice
from farm.recommend.plans.belief import Belief

Array = NDArray[np.float64]

DRAW_COUNT = 256
# A single choice is not held to cost more than three times the best more than it: with little
# known, a few wild truths would else outweigh all others.
MOST_REGRET_RATIO = 3.0


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
    belief: Belief, choices: Sequence[Choice], *, log_factors: Array, seed: int
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
