"""Means, medians, intervals and outliers of measured values, and straight lines through them."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
OUTLIER_SCALES = 3.5  # Iglewicz and Hoaglin's (1993) limit for the modified z-score
# A normal distribution's standard deviation over its median absolute deviation.
NORMAL_SCALE = 1.4826
# Steps of some models differ by less than a thousandth. What lies within 3.5 % of the median is no
# outlier to anyone, however calm the rest is.
_LEAST_SCALE_RATIO = 0.01
_LEAST_RUNS_Z = 2.0  # standard deviations below the runs that a random order has
# Above, the expansion is exact to seven digits, and the series would only take longer.
_MOST_EXACT_DEGREES = 30
_BISECTIONS = 60
_CONFIDENCE = 0.95
_LEAST_POINTS = 3
# Weights change by less than a rounding error after a few rounds already.
_FIT_ROUNDS = 10


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def median(values: Iterable[float | None]) -> float | None:
    """Median of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Return the median of at least one (value, weight), each value counted by its weight."""
    ordered = sorted(values)
    half = math.fsum(weight for _, weight in ordered) / 2
    reached = 0.0
    for index, (value, weight) in enumerate(ordered[:-1]):
        reached += weight
        if math.isclose(reached, half):
            return (value + ordered[index + 1][0]) / 2
        if reached > half:
            return value
    return ordered[-1][0]


def quantile(ordered: Sequence[float], ratio: float) -> float:
    """Interpolate linearly in an ascending, non-empty sequence (Hyndman and Fan's type 7)."""
    position = ratio * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


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
    return variance > 0 and (runs - expected) / math.sqrt(variance) < -_LEAST_RUNS_Z


def outlier_positions(times_s: Sequence[float]) -> tuple[int, ...]:
    """Return where the times are whose distance from the median exceeds 3.5 scales.

    The scale is 1.4826 x the median absolute deviation, which half of the values may distort
    before it breaks, and at least 1 % of the median.
    """
    if not times_s:
        return ()
    median_s = quantile(sorted(times_s), 0.5)
    deviation_s = quantile(sorted(abs(t - median_s) for t in times_s), 0.5)
    limit_s = OUTLIER_SCALES * max(NORMAL_SCALE * deviation_s, _LEAST_SCALE_RATIO * median_s)
    return tuple(i for i, t in enumerate(times_s) if abs(t - median_s) > limit_s)


# By hand, since SciPy is of the extra `ml` alone and repetitions are judged without it.
@functools.lru_cache(maxsize=1024)
def student_quantile(ratio: float, degrees: int) -> float:
    """Return the quantile of Student's t with `degrees` >= 1; `ratio` lies between 0 and 1.

    Up to 30 degrees it inverts the finite series of the distribution (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4), which is exact; beyond, it is their expansion 26.7.5 in 1 / degrees around
    the normal quantile.
    """
    if ratio < 0.5:
        return -student_quantile(1 - ratio, degrees)
    if degrees > _MOST_EXACT_DEGREES:
        return _expansion(ratio, degrees)
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _inner_ratio(middle, degrees) < 2 * ratio - 1:
            low = middle
        else:
            high = middle
    return math.tan((low + high) / 2) * math.sqrt(degrees)


def _inner_ratio(angle: float, degrees: int) -> float:
    """P(-t < T < t), where tan(angle) = t / sqrt(degrees)."""
    cosine = math.cos(angle)
    # Odd degrees: powers 1, 3 ... degrees - 2 of the cosine; even ones: 0, 2 ... degrees - 2.
    first = degrees % 2
    term = cosine if first else 1.0
    total = 0.0
    for power in range(first, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    outer = math.sin(angle) * total
    return 2 / math.pi * (angle + outer) if first else outer


def _expansion(ratio: float, degrees: int) -> float:
    x = statistics.NormalDist().inv_cdf(ratio)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(degrees) ** power for power, term in enumerate(terms, start=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """y = intercept + slope x, each with its 95 % interval; `count`: of the points."""

    intercept: float
    intercept_low: float
    intercept_high: float
    slope: float
    slope_low: float
    slope_high: float
    count: int

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit_line(points: Sequence[tuple[float, float]]) -> LineFit | None:
    """Fit y = a + b x to (x, y) with y > 0; None with fewer than 3 points or a single x.

    Minimises sum(w (y - a - b x)^2) with w = 1 / (a + b x)^2, found by repetition: step times
    spread by a share of themselves, so that equal weights would let the long ones decide alone.
    With S = sum(w), the weighted means x' and y', D = sum(w (x - x')^2) and n points:
    b = sum(w (x - x') (y - y')) / D, a = y' - b x', s^2 = sum(w (y - a - b x)^2) / (n - 2),
    se(b) = s / sqrt(D), se(a) = s sqrt(1 / S + x'^2 / D), and each interval is the value -+ t se
    with Student's t for n - 2 degrees of freedom (Draper and Smith 1998, sections 1.4 and 9.2).
    a has the unit of y, b that of y over that of x; neither depends on the units chosen.
    """
    if len(points) < _LEAST_POINTS or len({x for x, _ in points}) < 2:
        return None
    weights = [y**-2 for _, y in points]
    for _ in range(_FIT_ROUNDS):
        intercept, slope, _, _ = _weighted_line(points, weights)
        fitted = [intercept + slope * x for x, _ in points]
        # Far from any line it may cross zero, where a share of it means nothing.
        weights = [
            (value if value > 0 else y) ** -2 for value, (_, y) in zip(fitted, points, strict=True)
        ]
    intercept, slope, middle_x, spread = _weighted_line(points, weights)
    degrees = len(points) - 2
    squares = math.fsum(
        w * (y - intercept - slope * x) ** 2 for w, (x, y) in zip(weights, points, strict=True)
    )
    deviation = math.sqrt(squares / degrees)
    student = student_quantile((1 + _CONFIDENCE) / 2, degrees)
    half_slope = student * deviation / math.sqrt(spread)
    half_intercept = student * deviation * math.sqrt(1 / math.fsum(weights) + middle_x**2 / spread)
    return LineFit(
        intercept=intercept,
        intercept_low=intercept - half_intercept,
        intercept_high=intercept + half_intercept,
        slope=slope,
        slope_low=slope - half_slope,
        slope_high=slope + half_slope,
        count=len(points),
    )


def _weighted_line(
    points: Sequence[tuple[float, float]], weights: Sequence[float]
) -> tuple[float, float, float, float]:
    """Return intercept, slope, the weighted mean of x, and sum(w (x - mean)^2)."""
    weighted = [(w, x, y) for w, (x, y) in zip(weights, points, strict=True)]
    total = math.fsum(weights)
    middle_x = math.fsum(w * x for w, x, _ in weighted) / total
    middle_y = math.fsum(w * y for w, _, y in weighted) / total
    spread = math.fsum(w * (x - middle_x) ** 2 for w, x, _ in weighted)
    slope = math.fsum(w * (x - middle_x) * (y - middle_y) for w, x, y in weighted) / spread
    return middle_y - slope * middle_x, slope, middle_x, spread
