"""Confidence interval of the median of values that depend on each other in time.

Steps of a training run are no independent draws: a slow stretch is slow for many of them. An
interval that took them for independent would be too narrow, and repetitions would end too soon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_Z = 1.96  # two-sided 95 % of the normal distribution
# The sum of autocorrelations ends at the lag that is this many times the sum so far: of the usual
# 4 to 10, what covered best in tests/property/statistics/test_intervals.py.
_WINDOW = 6
# What is assumed of a run's steps: that of an autoregressive process whose neighbours correlate by
# 0.6. It weighs as much as so many steps, since few steps underestimate how they depend on each
# other: with the estimate alone, intervals from 10 to 30 steps covered 77 to 91 % at 0.6.
_ASSUMED_LENGTH = 3.0
_ASSUMED_WEIGHT = 30
# Beyond, the series would have to be hundreds of thousands of steps long to say anything.
_MAX_LAG = 2000


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % interval of the median of `values`, in the order in which they came.

    The interval is from the r-th smallest to the r-th largest value, with
    r = floor(n / 2 - z sqrt(n tau) / 2 + 1 / 2): for tau = 1 that of independent values, whatever
    their distribution (Conover 1999, section 3.2). tau is how many consecutive values are worth
    one independent one: (30 x 3 + n t) / (30 + n), where t is the `correlation_length` of the n
    values and 3 that of a process whose neighbours correlate by 0.6. None where even the smallest
    and the largest value do not span 95 %: with fewer than 12 values, or when they depend on each
    other for too long.
    """
    count = len(values)
    weighted = _ASSUMED_WEIGHT * _ASSUMED_LENGTH + count * correlation_length(values)
    half_width = _Z * math.sqrt(count * weighted / (_ASSUMED_WEIGHT + count)) / 2
    rank = math.floor(count / 2 - half_width + 0.5)
    if rank < 1:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[count - rank]


def correlation_length(values: Sequence[float]) -> float:
    """Return tau: how many consecutive values are worth one independent one; 1 at least.

    tau = 1 + 2 sum of rho(k), where rho(k) is the autocorrelation at lag k of whether a value
    lies below the median, which is what the median's variance depends on. The sum ends at the
    first k >= 6 tau (Sokal 1997). The sample's own median makes every rho(k) too small by about
    tau / n; what exceeds 1 is enlarged by the share of the series that the window takes.
    """
    count = len(values)
    if count < 4:
        return 1.0
    middle = sorted(values)[count // 2]
    # One bit a value: a lag's correlation is then one shift and one count of bits, which is what
    # makes a million steps a matter of milliseconds.
    below = int("".join("1" if value < middle else "0" for value in values), 2)
    share = below.bit_count() / count
    variance = share * (1 - share)
    if variance == 0:
        return 1.0
    tau, lag = 1.0, 0
    while lag < min(count // 2, _MAX_LAG) and lag < _WINDOW * tau:
        lag += 1
        pairs = count - lag
        differing = ((below ^ (below >> lag)) & ((1 << pairs) - 1)).bit_count()
        tau += 2 * (1 - differing / pairs / (2 * variance))
    taken_ratio = min(0.5, (2 * lag + 1) / count)
    return max(1.0, 1 + (tau - 1) / (1 - taken_ratio))
