"""Scores of predictions: errors, regret and coverage of intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from farm.recommend.configuration import Observation
from farm.recommend.contracts import AIMS, Prediction
from farm.statistics import median

_Candidate = TypeVar("_Candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutAnswer:
    """A held-out measurement, and the prediction of its configuration without it."""

    observation: Observation
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorScore:
    """Absolute relative errors, |predicted / measured - 1|; None where nothing was answered."""

    answered_count: int
    unknown_count: int
    median_ratio: float | None
    mean_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretScore:
    """How much more the chosen configurations take than the best ones, over all choices."""

    choice_count: int
    right_ratio: float | None
    mean_ratio: float | None
    p95_ratio: float | None
    max_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalScore:
    """Of the intervals that were meant to cover `aim_ratio`.

    `width_ratio`: median of high / low - 1. `log_score`: see `log_interval_score`, the mean.
    """

    aim_ratio: float
    interval_count: int
    coverage_ratio: float | None
    width_ratio: float | None
    log_score: float | None


def error_score(outcomes: Iterable[HeldOutAnswer]) -> ErrorScore:
    """Return the relative errors of the predictions, and the number of missing ones."""
    errors: list[float] = []
    unknown_count = 0
    for outcome in outcomes:
        predicted_s = outcome.prediction.step_time_s
        if predicted_s is None:
            unknown_count += 1
        else:
            errors.append(abs(predicted_s / outcome.observation.step_time_s - 1))
    return ErrorScore(
        answered_count=len(errors),
        unknown_count=unknown_count,
        median_ratio=median(errors),
        mean_ratio=statistics.fmean(errors) if errors else None,
    )


def interval_score(outcomes: Iterable[HeldOutAnswer], *, aim_ratio: float) -> IntervalScore:
    """Score the 80 % or the 90 % intervals of the outcomes that have one."""
    assert aim_ratio in AIMS
    found: list[tuple[float, float, float]] = []
    for outcome in outcomes:
        answer = outcome.prediction
        low_s, high_s = answer.low80_s, answer.high80_s
        if aim_ratio == 0.9:
            low_s, high_s = answer.low_s, answer.high_s
        if low_s is not None and high_s is not None:
            found.append((low_s, high_s, outcome.observation.step_time_s))
    if not found:
        return IntervalScore(
            aim_ratio=aim_ratio,
            interval_count=0,
            coverage_ratio=None,
            width_ratio=None,
            log_score=None,
        )
    return IntervalScore(
        aim_ratio=aim_ratio,
        interval_count=len(found),
        coverage_ratio=statistics.fmean(low <= true <= high for low, high, true in found),
        width_ratio=statistics.median(high / low - 1 for low, high, _ in found),
        log_score=statistics.fmean(
            log_interval_score(low, high, true, aim_ratio=aim_ratio) for low, high, true in found
        ),
    )


def log_interval_score(low_s: float, high_s: float, true_s: float, *, aim_ratio: float) -> float:
    """Return the width of the interval in ln(time), plus 2/(1 - aim) times how far off it is.

    The interval score of Gneiting and Raftery 2007 (equation 43) of ln(time): small is good, and
    it is least, in expectation, for the interval between the true quantiles. In the logarithm,
    since a step of 10 s would otherwise count a thousand times as much as one of 10 ms.
    """
    low, high, true = math.log(low_s), math.log(high_s), math.log(true_s)
    miss = max(0.0, low - true, true - high)
    return high - low + 2 / (1 - aim_ratio) * miss


def regret_score(regret_ratios: Sequence[float]) -> RegretScore:
    """Summarise regrets; a choice is right where its regret is 0.

    The 95th percentile is the smallest regret that at least 95 % of all do not exceed.
    """
    if not regret_ratios:
        return RegretScore(
            choice_count=0, right_ratio=None, mean_ratio=None, p95_ratio=None, max_ratio=None
        )
    ordered = sorted(regret_ratios)
    return RegretScore(
        choice_count=len(ordered),
        right_ratio=statistics.fmean(ratio == 0 for ratio in ordered),
        mean_ratio=statistics.fmean(ordered),
        p95_ratio=ordered[math.ceil(0.95 * len(ordered)) - 1],
        max_ratio=ordered[-1],
    )


def regret_ratio(true: Mapping[_Candidate, float], predicted: Mapping[_Candidate, float]) -> float:
    """Return true(chosen) / true(best) - 1, chosen by the smallest predicted value.

    Both are of one question's candidates; what has no prediction cannot be chosen, but may be the
    best. Equal predictions: the candidate that comes first.
    """
    chosen = min(predicted, key=lambda candidate: predicted[candidate])
    return true[chosen] / min(true.values()) - 1
