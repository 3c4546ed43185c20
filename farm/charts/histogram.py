"""A histogram of step times, with the outliers apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from farm.statistics import quantile
from farm.text.display import count, duration
from farm.text.plurals import counted

_MOST_BINS = 30
_FEWEST_TIMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """`is_far`: it holds all times on one side that are far from the median."""

    low_s: float
    high_s: float
    count: int
    is_far: bool = False

    @property
    def note(self) -> str:
        """Describe the bins in words."""
        steps = counted(self.count, "step", write=count)
        return f"{duration(self.low_s)} to {duration(self.high_s)}: {steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    title: str
    summary: str
    bins: Sequence[Bin]


def histogram(times_s: Sequence[float], *, far: Collection[int], title: str) -> Histogram | None:
    """Count times into bins of equal width; None of fewer than two times.

    `far`: the places of those far from the median. They are in one bin on either side: one stall of
    a minute would else leave all other steps in a single bin.
    """
    if len(times_s) < _FEWEST_TIMES:
        return None
    apart = frozenset(far)
    near = sorted(time_s for i, time_s in enumerate(times_s) if i not in apart)
    low_s, high_s = near[0], near[-1]
    shorter = [times_s[i] for i in far if times_s[i] < low_s]
    longer = [times_s[i] for i in far if times_s[i] > high_s]
    bins = [*_far_bin(shorter), *_near_bins(near, low_s, high_s), *_far_bin(longer)]
    median_s = quantile(sorted(times_s), 0.5)
    return Histogram(
        title=title,
        summary=f"median {duration(median_s)}, {count(len(far))} of {count(len(times_s))} steps far"
        f" from it; the shortest {duration(min(times_s))}, the longest {duration(max(times_s))}",
        bins=bins,
    )


def _near_bins(ordered: Sequence[float], low_s: float, high_s: float) -> list[Bin]:
    number = max(1, min(_MOST_BINS, round(len(ordered) ** 0.5)))
    width_s = (high_s - low_s) / number
    if width_s <= 0:
        return [Bin(low_s=low_s, high_s=high_s, count=len(ordered))]
    counts = [0] * number
    for time_s in ordered:
        counts[min(number - 1, int((time_s - low_s) / width_s))] += 1
    return [
        Bin(low_s=low_s + i * width_s, high_s=low_s + (i + 1) * width_s, count=found)
        for i, found in enumerate(counts)
    ]


def _far_bin(times_s: Sequence[float]) -> list[Bin]:
    if not times_s:
        return []
    return [Bin(low_s=min(times_s), high_s=max(times_s), count=len(times_s), is_far=True)]
