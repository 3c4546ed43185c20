"""Quantiles of Student's t distribution."""

from __future__ import annotations

import functools
import math
import statistics

# Above, the expansion is exact to seven digits, and the series would only take longer.
_MOST_EXACT_DEGREES = 30
_BISECTIONS = 60


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
