"""Means, medians and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


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
