"""Shares of a step's time by activity, for the gang and for each rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from web.job.ranks import RankCard

# What each part means, for readers of the page.
MEANINGS = {
    "compute": "Everything in a step that is no exchange: the model's own work.",
    "communication": "Inside the exchange: transfer, and waiting for slower ranks.",
    "idle": "What is left of the step: neither of the two.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str  # a key of MEANINGS
    seconds: float
    ratio: float  # of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The parts of one step of `name`, in the order of MEANINGS."""

    name: str
    step_s: float
    parts: Sequence[Part]

    @property
    def bar(self) -> list[tuple[str, float]]:
        """The share of each part in percent, as a stacked bar shows them."""
        return [(part.name, 100 * part.ratio) for part in self.parts]


def shares(
    name: str, *, step_s: float | None, compute_s: float | None, communication_s: float | None
) -> Shares | None:
    """Split a profiled step; None where the profiler told nothing.

    The three are medians of their own, so their sum may exceed the step: then nothing is idle,
    and the shares are of the sum.
    """
    if not step_s or compute_s is None or communication_s is None:
        return None
    idle_s = max(0.0, step_s - compute_s - communication_s)
    total_s = compute_s + communication_s + idle_s
    times_s = {"compute": compute_s, "communication": communication_s, "idle": idle_s}
    return Shares(
        name=name,
        step_s=step_s,
        parts=[
            Part(name=part, seconds=times_s[part], ratio=times_s[part] / total_s)
            for part in MEANINGS
        ],
    )


def rank_shares(ranks: Sequence[RankCard]) -> list[Shares]:
    """Return the shares of each rank that was profiled, in order."""
    found = (
        shares(
            f"rank {one.rank}",
            step_s=one.profile.step_time_s,
            compute_s=one.profile.compute_s,
            communication_s=one.profile.communication_s,
        )
        for one in ranks
        if one.profile is not None
    )
    return [one for one in found if one is not None]
