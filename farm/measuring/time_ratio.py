"""The ratio of two times with its interval, from repetitions of both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.configuration.sweep import LEAST_REPETITIONS
from farm.measuring.precision import CONFIDENCE, SEQUENTIAL_CONFIDENCE
from farm.statistics.student import student_quantile

# Where repetitions ended because they seemed precise, as in `farm.measuring.precision`.


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio:
    """`low` to `high` is the 95 % interval of `ratio`; None where repetitions are too few."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def is_beyond_noise(self) -> bool | None:
        """Whether the interval leaves out 1; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1


def time_ratio(
    times_s: Sequence[float],
    base_s: Sequence[float],
    *,
    is_sequential: bool,
    inflations: tuple[float, float] = (1.0, 1.0),
) -> TimeRatio | None:
    """Return how many times as long `times_s` are as `base_s`; None without any of either.

    The ratio of geometric means, whose logarithm is the difference d of two means. Its interval is
    exp(d -+ t e) with e^2 = v1 + v2 and t Student's quantile for

        (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1))

    degrees of freedom (Welch 1947), rounded down; v = f s^2 / n, s is the standard deviation of the
    logarithms and f of `inflations` the `farm.measuring.precision.variance_inflation` of either.
    It needs 3 repetitions of either. `is_sequential`: see `farm.measuring.precision.time_interval`.
    """
    if not times_s or not base_s or min(*times_s, *base_s) <= 0:
        return None
    logs, base_logs = [math.log(t) for t in times_s], [math.log(t) for t in base_s]
    distance = statistics.fmean(logs) - statistics.fmean(base_logs)
    ratio = math.exp(distance)
    if min(len(logs), len(base_logs)) < LEAST_REPETITIONS:
        return TimeRatio(ratio=ratio)
    shares = [
        inflation * statistics.variance(one) / len(one)
        for one, inflation in zip((logs, base_logs), inflations, strict=True)
    ]
    total = sum(shares)
    if total == 0:
        return TimeRatio(ratio=ratio, low=ratio, high=ratio)
    freedom = total**2 / sum(
        share**2 / (len(one) - 1) for share, one in zip(shares, (logs, base_logs), strict=True)
    )
    confidence = SEQUENTIAL_CONFIDENCE if is_sequential else CONFIDENCE
    quantile = student_quantile((1 + confidence) / 2, max(1, math.floor(freedom)))
    half = quantile * math.sqrt(total)
    return TimeRatio(ratio=ratio, low=math.exp(distance - half), high=math.exp(distance + half))
