"""Time to accuracy, in seconds and in epochs. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """One training by epochs: how long each took, evaluation excluded, and how accurate it got."""

    train_s: tuple[float, ...]
    accuracy_ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToAccuracy:
    """Over the repetitions of one configuration; medians of those that reached the target.

    `time_s`: from the first step to the first evaluation at or above it, evaluations excluded.
    """

    repetition_count: int
    reached_count: int
    time_s: float | None
    epoch_count: float | None


def time_to_accuracy(
    curves: Sequence[LearningCurve], target_accuracy_ratio: float
) -> TimeToAccuracy:
    """Return the time to the target; None if no training reached it."""
    times_s, epoch_counts = [], []
    for curve in curves:
        elapsed_s = itertools.accumulate(curve.train_s)
        for epoch, (time_s, ratio) in enumerate(
            zip(elapsed_s, curve.accuracy_ratios, strict=True), start=1
        ):
            if ratio >= target_accuracy_ratio:
                times_s.append(time_s)
                epoch_counts.append(epoch)
                break
    return TimeToAccuracy(
        repetition_count=len(curves),
        reached_count=len(times_s),
        time_s=median(times_s),
        epoch_count=median(epoch_counts),
    )


def mean_curve(curves: Sequence[LearningCurve]) -> tuple[float, ...]:
    """Return the mean accuracy after each epoch that every one of the trainings has come to."""
    return tuple(
        statistics.fmean(ratios)
        for ratios in zip(*(c.accuracy_ratios for c in curves), strict=False)
    )
