"""Ratios of pairs that were measured one right after the other."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """The median over pairs of ours to the baseline, with its 95 % interval."""

    median: float
    low: float
    high: float
    pair_count: int


def paired_ratio(ours: Sequence[float], baseline: Sequence[float], *, seed: int = 0) -> PairedRatio:
    """Compare pair by pair, so that what drifts slowly cancels out.

    The interval is the percentile bootstrap's, over pairs (Efron and Tibshirani 1993, ch. 13).
    """
    ratios = [a / b for a, b in zip(ours, baseline, strict=True)]
    draw = random.Random(seed)
    medians = sorted(
        statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    return PairedRatio(
        median=statistics.median(ratios),
        low=medians[round(0.025 * _RESAMPLES)],
        high=medians[round(0.975 * _RESAMPLES) - 1],
        pair_count=len(ratios),
    )


def alternating(pair_count: int) -> list[bool]:
    """Return whether ours comes first in each pair: ABBA, so that neither gains by its place."""
    return [number % 2 == 0 for number in range(pair_count)]
