"""Prediction intervals from repetitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.measuring.precision import LEAST_DEVIATION
from farm.statistics import student_quantile

# With two, the spread itself is hardly known: the interval would be six times as wide as it.
MIN_REPETITIONS = 3
# Two runs of a training never agree like this: one value was copied, or rounded.
_EQUAL_RATIO = 1e-4
# A baseline may be printed twice, once as 0.2468 and once as 0.247. Of fewer digits than three it
# would prove nothing: 0.400 is a float without its zeros, and no copy of 0.401.
_LEAST_DIGITS, _MOST_DIGITS = 3, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    low_s: float
    high_s: float

    @classmethod
    def around(cls, time_s: float, half_width: float) -> Interval:
        """Return what lies that far, in ln(time), to each side."""
        return cls(low_s=time_s * math.exp(-half_width), high_s=time_s * math.exp(half_width))


def distinct(times_s: Sequence[float]) -> list[float]:
    """Return the times without those that repeat another, ascending.

    Benchmark tables print their baseline once for each network, perhaps with other digits, and
    times of few digits agree by rounding: no spread of 0 says how much a measurement varies.
    """
    found: list[float] = []
    for time_s in sorted(times_s):
        if not found or not _is_copy(found[-1], time_s):
            found.append(time_s)
    return found


def _is_copy(less: float, more: float) -> bool:
    """Whether two times are one value: equal, or one is the other with fewer digits."""
    if more <= less * (1 + _EQUAL_RATIO):
        return True
    digits = min(_digit_count(less), _digit_count(more))
    return digits >= _LEAST_DIGITS and f"{less:.{digits}g}" == f"{more:.{digits}g}"


def _digit_count(value: float) -> int:
    """Return how many significant digits tell the value."""
    mantissa = f"{value:.{_MOST_DIGITS - 1}e}".partition("e")[0]
    return max(1, len(mantissa.replace(".", "").rstrip("0")))


def prediction_interval(
    times_s: Sequence[float], *, coverage_ratio: float, least_deviation: float = LEAST_DEVIATION
) -> Interval | None:
    """Return where one more repetition falls with the given probability; None with fewer than 3.

    Repetitions are the `distinct` times. `least_deviation`: of ln(time), if they differ by less.

    exp(m -+ t s sqrt(1 + 1/n)), with m and s the mean and standard deviation of ln(time) over n
    repetitions and t the quantile of Student's distribution with n - 1 degrees of freedom: exact
    if repetitions are independent and log-normal. The spread of the steps within a repetition is
    not used: it says nothing of how repetitions differ.
    """
    repetitions_s = distinct(times_s)
    n = len(repetitions_s)
    if n < MIN_REPETITIONS or repetitions_s[0] <= 0:
        return None
    logs = [math.log(time_s) for time_s in repetitions_s]
    mean, deviation = statistics.fmean(logs), max(statistics.stdev(logs), least_deviation)
    half = student_quantile((1 + coverage_ratio) / 2, n - 1) * deviation * math.sqrt(1 + 1 / n)
    return Interval.around(math.exp(mean), half)
