"""Whether an emulated network is the one that was asked for.

Pure. What an emulator claims is worth nothing: every rank times the way to every other one before
and after the profile was applied, and the difference is held against the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.core.reports import PeerRtt
from farm.core.spec import NetworkProfile

TOLERANCE_RATIO = 0.10
TOLERANCE_S = 0.001
# Beyond, so many probes wait for a packet sent again that their median is not the link's.
_MAX_LOSS_RATIO = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRtts:
    """What one rank has measured: `untouched` before the profile was applied, `shaped` after."""

    rank: int
    agent_id: str
    untouched: Sequence[PeerRtt]
    shaped: Sequence[PeerRtt]
    emulator: str | None = None  # what shaped it


def expected_rtt_s(profile: NetworkProfile, *, untouched_s: float) -> float:
    """Return base + 2 x one-way delay: each end delays what it sends."""
    return untouched_s + 2 * profile.one_way_delay_s


def is_as_asked(profile: NetworkProfile, *, untouched_s: float, shaped_s: float) -> bool:
    """Whether a measured round trip is within 10 % + 1 ms of the expected one.

    The median of 20 round trips with jitter has a standard deviation of its own, of some 0.2 x
    jitter; so much as the jitter is allowed more. Where many packets are lost, only too short a
    round trip is told from the right one.
    """
    expected_s = expected_rtt_s(profile, untouched_s=untouched_s)
    tolerance_s = TOLERANCE_RATIO * expected_s + TOLERANCE_S + profile.jitter_s
    if shaped_s < expected_s - tolerance_s:
        return False
    return profile.packet_loss_ratio > _MAX_LOSS_RATIO or shaped_s <= expected_s + tolerance_s


def is_settled(
    profile: NetworkProfile, *, untouched: Iterable[PeerRtt], shaped: Iterable[PeerRtt]
) -> bool:
    """Whether all of a rank's round trips are as asked."""
    base_s = {peer.rank: peer.rtt_s for peer in untouched}
    return all(
        is_as_asked(profile, untouched_s=base_s[peer.rank], shaped_s=peer.rtt_s)
        for peer in shaped
        if peer.rank in base_s
    )


def find_deviations(profile: NetworkProfile, ranks: Sequence[RankRtts]) -> tuple[str, ...]:
    """Return what is not as asked, or was not measured, one line each; the worst comes first."""
    found = []
    first_with: dict[str, RankRtts] = {}
    for own in ranks:
        if own.emulator is not None:
            first_with.setdefault(own.emulator, own)
    if len(first_with) > 1:
        having = ", ".join(
            f"rank {own.rank} on {own.agent_id} was shaped by {name}"
            for name, own in first_with.items()
        )
        found.append((float("inf"), f"{having}: name one emulator in the sweep"))
    for own in ranks:
        base_s = {peer.rank: peer.rtt_s for peer in own.untouched}
        shaped_s = {peer.rank: peer.rtt_s for peer in own.shaped}
        for peer in (other.rank for other in ranks if other.rank != own.rank):
            way = f"from rank {own.rank} on {own.agent_id} to rank {peer}"
            if peer not in base_s or peer not in shaped_s:
                found.append((float("inf"), f"the round trip {way} was not measured"))
                continue
            if is_as_asked(profile, untouched_s=base_s[peer], shaped_s=shaped_s[peer]):
                continue
            expected_s = expected_rtt_s(profile, untouched_s=base_s[peer])
            found.append(
                (
                    abs(shaped_s[peer] - expected_s),
                    f"the round trip {way} takes {_ms(shaped_s[peer])}, expected"
                    f" {_ms(expected_s)}: {_ms(base_s[peer])} and twice the one-way delay of"
                    f" {_ms(profile.one_way_delay_s)}",
                )
            )
    return tuple(text for _, text in sorted(found, key=lambda item: item[0], reverse=True))


def find_leftovers(ranks: Sequence[RankRtts]) -> tuple[str, ...]:
    """Return which ways are not back to what they were; `shaped` is measured after the end.

    What could not be measured any more proves nothing.
    """
    found = []
    for own in ranks:
        base_s = {peer.rank: peer.rtt_s for peer in own.untouched}
        found += [
            f"the round trip from rank {own.rank} on {own.agent_id} to rank {peer.rank} still takes"
            f" {_ms(peer.rtt_s)} after the end, and took {_ms(base_s[peer.rank])} before"
            for peer in own.shaped
            if peer.rank in base_s
            and not is_as_asked(
                NetworkProfile(), untouched_s=base_s[peer.rank], shaped_s=peer.rtt_s
            )
        ]
    return tuple(found)


def _ms(time_s: float) -> str:
    return f"{time_s * 1000:.3g} ms"
