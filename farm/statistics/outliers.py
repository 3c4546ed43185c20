"""Finds times far longer or far shorter than the others. They are counted, never dropped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from farm.statistics.means import quantile

_FAR = 3.5  # Iglewicz and Hoaglin's (1993) limit for the modified z-score
_NORMAL = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
# Steps of some models differ by less than a thousandth. What lies within 3.5 % of the median is no
# outlier to anyone, however calm the rest is.
_LEAST_SCALE_RATIO = 0.01
_FEW_RUNS_Z = 2.0  # standard deviations below the runs that a random order has


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """`largest_s`: the longest outlier, None where none is longer than the median.

    `is_in_stretches`: outliers follow each other more often than if they came at random.
    """

    count: int
    largest_s: float | None
    is_in_stretches: bool = False


def find_outliers(times_s: Sequence[float]) -> Outliers:
    """Count the outliers among step times; see `outlier_positions`."""
    positions = outlier_positions(times_s)
    far = [times_s[i] for i in positions]
    median_s = quantile(sorted(times_s), 0.5) if far else 0.0
    return Outliers(
        count=len(far),
        largest_s=max((t for t in far if t > median_s), default=None),
        is_in_stretches=_is_in_stretches(positions, len(times_s)),
    )


def _is_in_stretches(positions: Sequence[int], count: int) -> bool:
    """Return whether the positions have fewer runs than a random order of them would.

    The runs test of Wald and Wolfowitz (1940): the number of runs, of n1 values among n0 others, is
    about normal with mean m = 1 + 2 n1 n0 / n and variance (m - 1)(m - 2) / (n - 1).
    """
    far, near = len(positions), count - len(positions)
    if far < 2 or not near:
        return False
    chosen = set(positions)
    is_far = [i in chosen for i in range(count)]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(is_far))
    expected = 1 + 2 * far * near / count
    variance = (expected - 1) * (expected - 2) / (count - 1)
    return variance > 0 and (runs - expected) / math.sqrt(variance) < -_FEW_RUNS_Z


def outlier_positions(times_s: Sequence[float]) -> tuple[int, ...]:
    """Return where the times are whose distance from the median exceeds 3.5 scales.

    The scale is 1.4826 x the median absolute deviation, which half of the values may distort
    before it breaks, and at least 1 % of the median.
    """
    if not times_s:
        return ()
    median_s = quantile(sorted(times_s), 0.5)
    deviation_s = quantile(sorted(abs(t - median_s) for t in times_s), 0.5)
    limit_s = _FAR * max(_NORMAL * deviation_s, _LEAST_SCALE_RATIO * median_s)
    return tuple(i for i, t in enumerate(times_s) if abs(t - median_s) > limit_s)
