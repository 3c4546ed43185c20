"""Bytes exchanged and idle time, summed up over the ranks that train. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from farm.messages.trainer_lines import Exchange, StepProfile
from farm.statistics import mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFigures:
    """Figures over the timed steps; None is a value that no rank reported.

    `push_s`, `pull_s` and `idle_ratio` are means over the ranks, the first two per step.
    `staleness_counts[k]`: how many updates were k updates old when they were applied.
    """

    idle_ratio: float | None
    push_s: float | None
    pull_s: float | None
    update_count: int | None
    staleness_counts: tuple[int, ...] | None
    idle_unknown_because: str | None = None

    @property
    def staleness_mean(self) -> float | None:
        """Return by how many updates of others an update was late, on average."""
        counts = self.staleness_counts or ()
        updates = sum(counts)
        return sum(k * n for k, n in enumerate(counts)) / updates if updates else None

    @property
    def staleness_max(self) -> int | None:
        """Return the same of the latest."""
        counts = self.staleness_counts or ()
        return max((k for k, n in enumerate(counts) if n), default=None)


def exchange_figures(
    profiles: Sequence[StepProfile | None],
    exchanges: Sequence[Exchange | None],
    *,
    is_synchronous: bool,
) -> ExchangeFigures:
    """Sum up the counts of the ranks that train.

    An update of a synchronous gang is one of all its ranks; others update by themselves, so that
    theirs add up.
    """
    unreported = [rank for rank, profile in enumerate(profiles) if profile is None]
    found = [exchange for exchange in exchanges if exchange is not None]
    updates = [exchange.update_count for exchange in found]
    stale = [e.staleness_counts for e in found if e.staleness_counts is not None]
    return ExchangeFigures(
        idle_ratio=None if unreported else mean(map(idle_ratio, profiles)),
        idle_unknown_because=(
            f"rank {unreported[0]} could not separate computing from exchanging"
            if unreported
            else None
        ),
        push_s=mean(exchange.push_s for exchange in found),
        pull_s=mean(exchange.pull_s for exchange in found),
        update_count=(max(updates) if is_synchronous else sum(updates)) if updates else None,
        staleness_counts=(
            tuple(map(sum, itertools.zip_longest(*stale, fillvalue=0))) if stale else None
        ),
    )


def idle_ratio(profile: StepProfile | None) -> float | None:
    """Return the share of a profiled step in which a rank exchanges and computes nothing.

    Sending, receiving, waiting for others and agreeing with them on an exchange is exchanging.
    All else is computing, with what feeds and starts a step. None: they could not be told apart.
    """
    if profile is None or profile.step_time_s <= 0:
        return None
    return min(1.0, max(0.0, 1 - profile.compute_s / profile.step_time_s))
