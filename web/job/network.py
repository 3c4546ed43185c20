"""Compares the requested network of an attempt with the measured one, link by link.

Pure. The verdict equals the scheduler's: the same functions judge the same round trips.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.configuration.spec import NetworkProfile
from farm.gang.network_check import (
    RankNetwork,
    expected_rtt_s,
    find_deviations,
    find_leftovers,
    is_back,
    matches_bandwidth,
    matches_profile,
)
from farm.messages.reports import PeerBandwidth, PeerRtt
from farm.store.tables import RankRow

_MOST_PAIRS = 12
_MOST_REMARKS = 4


class NetworkVerdict(enum.Enum):
    """The verdict on the emulated network."""

    UNTOUCHED = "untouched"  # nothing was asked of it
    UNKNOWN = "not measured"  # not yet, or not any more
    AS_REQUESTED = "as requested"
    NOT_AS_REQUESTED = "not as requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPair:
    """The path from one rank to another.

    `expected_s`: the requested round trip plus the one before.

    `is_right`: whether the emulated network is as requested; None if nothing was requested or
    measured. `is_undone` likewise.
    """

    rank: int
    peer: int
    before_s: float | None
    expected_s: float | None
    shaped_s: float | None
    after_s: float | None
    bytes_per_s: float | None
    is_right: bool | None
    is_undone: bool | None

    @property
    def deviation_s(self) -> float:
        """Return how far the emulated round trip is from the expected one; 0 if unknown."""
        if self.shaped_s is None or self.expected_s is None:
            return 0.0
        return abs(self.shaped_s - self.expected_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """`pairs`: the wrong ones first, then those furthest off, of `pair_count`.

    `before`, `shaped` and `after` are the pairs with the longest round trips of all, `narrowest`
    that with the least bandwidth. `remarks`: what is not as asked, or is left over at the end.
    """

    profile: NetworkProfile
    verdict: NetworkVerdict
    remarks: Sequence[str]
    pairs: Sequence[RankPair]
    pair_count: int
    before: RankPair | None
    shaped: RankPair | None
    after: RankPair | None
    narrowest: RankPair | None
    emulators: Sequence[str]


def network_of(ranks: Sequence[RankRow], profile: NetworkProfile | None) -> Network | None:
    """Combine the measurements of a gang's ranks; None if the gang has no network."""
    if len(ranks) < 2:
        return None
    profile = profile or NetworkProfile()
    measured = [_measured(rank) for rank in ranks]
    back = [
        RankNetwork(
            rank=rank.rank,
            agent_id=rank.agent_id,
            untouched=_rtts(rank.peers),
            shaped=_rtts(rank.ended),
        )
        for rank in ranks
    ]
    pairs = [
        pair
        for own, after in zip(measured, back, strict=True)
        for pair in _rank_pairs(
            profile, own, after, peers=[r.rank for r in ranks if r.rank != own.rank]
        )
    ]
    verdict, remarks = _judged(profile, measured)
    remarks += find_leftovers(back)
    ordered = sorted(
        pairs, key=lambda w: (w.is_right is not False, w.is_undone is not False, -w.deviation_s)
    )
    return Network(
        profile=profile,
        verdict=verdict,
        remarks=remarks[:_MOST_REMARKS],
        pairs=ordered[:_MOST_PAIRS],
        pair_count=len(pairs),
        before=_longest(pairs, "before_s"),
        shaped=_longest(pairs, "shaped_s"),
        after=_longest(pairs, "after_s"),
        narrowest=min(
            (pair for pair in pairs if pair.bytes_per_s is not None),
            key=lambda pair: pair.bytes_per_s or 0.0,
            default=None,
        ),
        emulators=sorted({own.emulator for own in measured if own.emulator} - {"none"}),
    )


def _judged(
    profile: NetworkProfile, ranks: Sequence[RankNetwork]
) -> tuple[NetworkVerdict, tuple[str, ...]]:
    if profile.is_untouched:
        return NetworkVerdict.UNTOUCHED, ()
    if not all(own.shaped for own in ranks):
        return NetworkVerdict.UNKNOWN, ()
    found = find_deviations(profile, ranks)
    return (NetworkVerdict.NOT_AS_REQUESTED if found else NetworkVerdict.AS_REQUESTED), found


def _rank_pairs(
    profile: NetworkProfile, own: RankNetwork, after: RankNetwork, *, peers: Sequence[int]
) -> list[RankPair]:
    before = {peer.rank: peer.rtt_s for peer in own.untouched}
    shaped = {peer.rank: peer.rtt_s for peer in own.shaped}
    back = {peer.rank: peer.rtt_s for peer in after.shaped}
    carried = {peer.rank: peer.bytes_per_s for peer in own.bandwidths}
    pairs = []
    for peer in peers:
        before_s, shaped_s, after_s = before.get(peer), shaped.get(peer), back.get(peer)
        pairs.append(
            RankPair(
                rank=own.rank,
                peer=peer,
                before_s=before_s,
                expected_s=None
                if before_s is None or profile.is_untouched
                else expected_rtt_s(profile, untouched_s=before_s),
                shaped_s=shaped_s,
                after_s=after_s,
                bytes_per_s=carried.get(peer),
                is_right=_is_right(
                    profile, before_s, shaped_s, carried.get(peer), peer_count=len(peers)
                ),
                is_undone=None
                if before_s is None or after_s is None
                else is_back(untouched_s=before_s, back_s=after_s),
            )
        )
    return pairs


def _is_right(
    profile: NetworkProfile,
    before_s: float | None,
    shaped_s: float | None,
    bytes_per_s: float | None,
    *,
    peer_count: int,
) -> bool | None:
    if before_s is None or shaped_s is None or profile.is_untouched:
        return None
    if not matches_profile(profile, untouched_s=before_s, shaped_s=shaped_s, peer_count=peer_count):
        return False
    return bytes_per_s is None or matches_bandwidth(
        profile, rtt_s=shaped_s, bytes_per_s=bytes_per_s
    )


def _longest(pairs: Sequence[RankPair], name: str) -> RankPair | None:
    known = [pair for pair in pairs if getattr(pair, name) is not None]
    return max(known, key=lambda pair: float(getattr(pair, name)), default=None)


def _measured(rank: RankRow) -> RankNetwork:
    shaped: Mapping[str, Any] = rank.shaped or {}
    return RankNetwork(
        rank=rank.rank,
        agent_id=rank.agent_id,
        untouched=_rtts(rank.peers),
        shaped=_rtts(rank.shaped),
        bandwidths=[
            PeerBandwidth(
                rank=one["rank"], bytes_per_s=one["bytes_per_s"], byte_count=one["byte_count"]
            )
            for one in shaped.get("bandwidths", ())
        ],
        emulator=shaped.get("emulator"),
    )


def _rtts(report: Mapping[str, Any] | None) -> list[PeerRtt]:
    return [
        PeerRtt(rank=one["rank"], rtt_s=one["rtt_s"], probe_count=one["probe_count"])
        for one in (report or {}).get("rtts", ())
    ]
