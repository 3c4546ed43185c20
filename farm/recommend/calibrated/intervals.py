"""Prediction intervals from repetitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.core.student import student_quantile

# With two, the spread itself is hardly known: the interval would be six times as wide as it.
MIN_REPETITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    low_s: float
    high_s: float


def prediction_interval(times_s: Sequence[float], *, coverage_ratio: float) -> Interval | None:
    """Return where one more repetition falls with the given probability; None with fewer than 3.

    exp(m -+ t s sqrt(1 + 1/n)), with m and s the mean and standard deviation of ln(time) over n
    repetitions and t the quantile of Student's distribution with n - 1 degrees of freedom: exact
    if repetitions are independent and log-normal. The spread of the steps within a repetition is
    not used: it says nothing of how repetitions differ.
    """
    n = len(times_s)
    if n < MIN_REPETITIONS or min(times_s) <= 0:
        return None
    logs = [math.log(time_s) for time_s in times_s]
    mean, deviation = statistics.fmean(logs), statistics.stdev(logs)
    half = student_quantile((1 + coverage_ratio) / 2, n - 1) * deviation * math.sqrt(1 + 1 / n)
    return Interval(low_s=math.exp(mean - half), high_s=math.exp(mean + half))
