"""Where the time of a step goes, what ranks exchange, and how stale updates are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.measuring.exchange_figures import ExchangeFigures, exchange_figures
from farm.messages.trainer_lines import Exchange, StepProfile
from farm.store.tables import RankRow
from farm.values.codec import from_stored
from web.job.ranks import RankCard

_MOST_BARS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExchange:
    """One rank that trains; None is a value that it did not report.

    `figures`: of this rank alone; `idle_ratios`: for each profiled step, the share in which it did
    not compute.
    """

    rank: int
    figures: ExchangeFigures
    idle_ratios: tuple[float, ...]
    sent_bytes_per_step: float | None
    received_bytes_per_step: float | None

    @property
    def is_told(self) -> bool:
        """Whether there is more to say than what was sent."""
        return self.figures.idle_ratio is not None or self.figures.update_count is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessBar:
    """So many updates were `staleness` updates old; the last bar may stand for older ones, too."""

    staleness: int
    is_or_more: bool
    update_count: int
    ratio: float  # of all updates


def rank_exchanges(rows: Sequence[RankRow], *, training_count: int) -> list[RankExchange]:
    """Return the final reports of the first `training_count` agents, which train."""
    found = []
    for row in rows:
        result = (row.ended or {}).get("result")
        if result is not None and row.rank < training_count:
            found.append(_exchange(row.rank, result))
    return found if any(one.is_told for one in found) else []


def staleness_bars(details: Mapping[str, Any]) -> list[StalenessBar]:
    """Return how stale the updates of a measurement were; empty if none can be stale."""
    counts: Sequence[int] = details.get("staleness_counts") or ()
    total = sum(counts)
    if not total:
        return []
    shown = [*counts[: _MOST_BARS - 1], sum(counts[_MOST_BARS - 1 :])]
    return [
        StalenessBar(
            staleness=k,
            is_or_more=k == _MOST_BARS - 1 and len(counts) > _MOST_BARS,
            update_count=n,
            ratio=n / total,
        )
        for k, n in enumerate(shown)
        if k < len(counts)
    ]


def _exchange(rank: int, result: Mapping[str, Any]) -> RankExchange:
    """Read a rank's result."""
    profile = from_stored(StepProfile, stored) if (stored := result.get("profile")) else None
    exchange = from_stored(Exchange, stored) if (stored := result.get("exchange")) else None
    steps = result.get("window_step_count")
    sent, received = result.get("payload_tx_bytes"), result.get("payload_rx_bytes")
    return RankExchange(
        rank=rank,
        figures=exchange_figures([profile], [exchange], is_synchronous=False),
        idle_ratios=profile.idle_ratios if profile else (),
        sent_bytes_per_step=sent / steps if sent is not None and steps else None,
        received_bytes_per_step=received / steps if received is not None and steps else None,
    )


# What each part means, for readers of the page.
MEANINGS = {
    "compute": "Everything in a step that is no exchange: the model's own work.",
    "communication": "Inside the exchange: transfer, and waiting for slower ranks.",
    "idle": "The rest of the step: neither of the two.",
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


def step_shares(
    name: str, *, step_s: float | None, compute_s: float | None, communication_s: float | None
) -> Shares | None:
    """Split a profiled step; None if the profiler reported nothing.

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
        step_shares(
            f"rank {one.rank}",
            step_s=one.profile.step_time_s,
            compute_s=one.profile.compute_s,
            communication_s=one.profile.communication_s,
        )
        for one in ranks
        if one.profile is not None
    )
    return [one for one in found if one is not None]
