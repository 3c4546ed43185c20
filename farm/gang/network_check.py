"""Checks that an emulated network has the requested properties.

Pure. What an emulator reports is not trusted. Every rank measures the round-trip time to every
other rank before and after the profile is applied, and the difference is compared with the profile.
If the profile limits the bandwidth, every rank also sends to every other rank, and the rate at
which bytes arrive is compared with the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.spec import NetworkProfile
from farm.gang.transfers import transfers_s, waiting_share
from farm.messages.reports import PeerBandwidth, PeerRtt
from farm.text.display import bit_rate, duration

TOLERANCE_RATIO = 0.10
TOLERANCE_S = 0.001
# A rank that finds something else looks again: a peer may be shaped a moment later than itself.
SHAPED_TRIES = 3
PROBE_COUNT = 20
# More at once would measure the process that probes instead of the network.
PARALLEL_PEERS = 4
_PROBE_BYTES = 100  # on the wire: 16, and the headers of TCP, IP and Ethernet
_CONNECT_RTTS = 2
# Beyond, so many probes wait for a packet sent again that their median is not the link's.
_MAX_LOSS_RATIO = 0.10
# What one TCP connection of a Python program fills for sure with the kernel's usual buffers, in a
# transfer's time. Through HTB 4 Gbit/s were measured to 5 % and 8 as 7; in a lab 40 Mbit/s over
# 0.2 s to 0.3 %, and 100 Mbit/s over 0.2 s as 75.
_FILLED_BYTES_PER_S = 500e6
_FILLED_BYTES = 1_000_000
_FILLED_RTT_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNetwork:
    """What one rank has measured: `untouched` before the profile was applied, the rest after."""

    rank: int
    agent_id: str
    untouched: Sequence[PeerRtt]
    shaped: Sequence[PeerRtt]
    bandwidths: Sequence[PeerBandwidth] = ()
    emulator: str | None = None  # what shaped it


def expected_rtt_s(profile: NetworkProfile, *, untouched_s: float) -> float:
    """Return base + 2 x one-way delay: each end delays what it sends."""
    return untouched_s + 2 * profile.one_way_delay_s


def queueing_s(profile: NetworkProfile, *, peer_count: int) -> float:
    """Return how long a probe may queue behind other probes on a link of limited bandwidth.

    At each end a probe may queue behind one probe, or answer, of this rank to every peer.
    """
    if profile.bandwidth_bytes_per_s is None:
        return 0.0
    return 2 * 2 * peer_count * _PROBE_BYTES / profile.bandwidth_bytes_per_s


def matches_profile(
    profile: NetworkProfile, *, untouched_s: float, shaped_s: float, peer_count: int = 1
) -> bool:
    """Whether a measured round trip is within 10 % + 1 ms of the expected one.

    The median of 20 round trips with jitter has a standard deviation of about 0.2 x jitter, so the
    jitter is added to the tolerance. If many packets are lost, only a round trip that is too short
    is wrong.
    """
    expected_s = expected_rtt_s(profile, untouched_s=untouched_s)
    tolerance_s = TOLERANCE_RATIO * expected_s + TOLERANCE_S + profile.jitter_s
    if shaped_s < expected_s - tolerance_s:
        return False
    longest_s = expected_s + tolerance_s + queueing_s(profile, peer_count=peer_count)
    return profile.packet_loss_ratio > _MAX_LOSS_RATIO or shaped_s <= longest_s


def is_back(*, untouched_s: float, back_s: float) -> bool:
    """Whether a round trip takes no longer than before; it may be shorter."""
    return back_s <= untouched_s * (1 + TOLERANCE_RATIO) + TOLERANCE_S


def matches_bandwidth(profile: NetworkProfile, *, rtt_s: float, bytes_per_s: float) -> bool:
    """Whether what arrives at a peer is within 10 % of the profile's bandwidth.

    If packets are lost or reordered, or if more bytes are in flight than the buffers of a
    connection hold, TCP may not fill the link: then only too high a bandwidth is wrong. Bytes that
    wait behind a lost packet when the measurement starts are added to the tolerance.
    """
    bandwidth_bytes_per_s = profile.bandwidth_bytes_per_s
    if bandwidth_bytes_per_s is None:
        return True
    waiting_ratio = (
        waiting_share(bandwidth_bytes_per_s, rtt_s=rtt_s) if profile.packet_loss_ratio else 0.0
    )
    if bytes_per_s > bandwidth_bytes_per_s * (1 + TOLERANCE_RATIO + waiting_ratio):
        return False
    is_filled = (
        not profile.packet_loss_ratio
        and not profile.jitter_s
        and rtt_s <= _FILLED_RTT_S
        and bandwidth_bytes_per_s <= _FILLED_BYTES_PER_S
        and bandwidth_bytes_per_s * rtt_s <= _FILLED_BYTES
    )
    return not is_filled or bytes_per_s >= bandwidth_bytes_per_s * (1 - TOLERANCE_RATIO)


def is_settled(
    profile: NetworkProfile, *, untouched: Sequence[PeerRtt], shaped: Iterable[PeerRtt]
) -> bool:
    """Whether all of a rank's round trips match the profile."""
    base_s = _rtts_s(untouched)
    return all(
        matches_profile(
            profile,
            untouched_s=base_s[peer.rank],
            shaped_s=peer.rtt_s,
            peer_count=len(untouched),
        )
        for peer in shaped
        if peer.rank in base_s
    )


def probing_s(profile: NetworkProfile, *, peer_count: int) -> float:
    """Return how much longer the profile makes a rank's probing of all its peers."""
    rtt_s = 2 * (profile.one_way_delay_s + profile.jitter_s)
    rtt_s += queueing_s(profile, peer_count=peer_count)
    rounds = math.ceil(peer_count / PARALLEL_PEERS)
    return rounds * (PROBE_COUNT + _CONNECT_RTTS) * rtt_s


def verification_s(profile: NetworkProfile, *, agent_count: int) -> float:
    """Return how much time the profile adds to its verification."""
    probing = SHAPED_TRIES * probing_s(profile, peer_count=agent_count - 1)
    return probing + transfers_s(profile, agent_count=agent_count)


def find_deviations(profile: NetworkProfile, ranks: Sequence[RankNetwork]) -> tuple[str, ...]:
    """Return a line for each deviation from the profile or missing measurement, worst first.

    Bandwidths are checked once the round trips are right: before that, they are not measured.
    """
    found = [*_several_emulators(ranks)]
    for own in ranks:
        found += _wrong_round_trips(profile, own, peers=_peers(own, ranks))
    if not found and profile.bandwidth_bytes_per_s is not None:
        for own in ranks:
            found += _wrong_bandwidths(profile, own, peers=_peers(own, ranks))
    return tuple(text for _, text in sorted(found, key=lambda item: item[0], reverse=True))


def find_leftovers(ranks: Sequence[RankNetwork]) -> tuple[str, ...]:
    """Return a line for each round trip longer than before; `shaped` is measured after the end.

    A missing measurement proves nothing.
    """
    found = []
    for own in ranks:
        base_s = _rtts_s(own.untouched)
        found += [
            f"the round trip from rank {own.rank} on {own.agent_id} to rank {peer.rank} still takes"
            f" {duration(peer.rtt_s)} after the end, and took {duration(base_s[peer.rank])} before"
            for peer in own.shaped
            if peer.rank in base_s and not is_back(untouched_s=base_s[peer.rank], back_s=peer.rtt_s)
        ]
    return tuple(found)


# How far off something is, in whatever unit, and the line that says so.
_Deviation = tuple[float, str]


def _several_emulators(ranks: Sequence[RankNetwork]) -> list[_Deviation]:
    first_with: dict[str, RankNetwork] = {}
    for own in ranks:
        if own.emulator is not None:
            first_with.setdefault(own.emulator, own)
    if len(first_with) < 2:
        return []
    having = ", ".join(
        f"rank {own.rank} on {own.agent_id} was shaped by {name}"
        for name, own in first_with.items()
    )
    return [(math.inf, f"{having}: name one emulator in the sweep")]


def _wrong_round_trips(
    profile: NetworkProfile, own: RankNetwork, *, peers: Sequence[int]
) -> list[_Deviation]:
    base_s, shaped_s = _rtts_s(own.untouched), _rtts_s(own.shaped)
    found = []
    for peer in peers:
        way = f"from rank {own.rank} on {own.agent_id} to rank {peer}"
        if peer not in base_s or peer not in shaped_s:
            found.append((math.inf, f"the round trip {way} was not measured"))
            continue
        untouched_s, measured_s = base_s[peer], shaped_s[peer]
        if matches_profile(
            profile, untouched_s=untouched_s, shaped_s=measured_s, peer_count=len(peers)
        ):
            continue
        expected_s = expected_rtt_s(profile, untouched_s=untouched_s)
        found.append(
            (
                abs(measured_s - expected_s),
                f"the round trip {way} takes {duration(measured_s)}, expected"
                f" {duration(expected_s)}: {duration(untouched_s)} and twice the one-way delay of"
                f" {duration(profile.one_way_delay_s)}",
            )
        )
    return found


def _wrong_bandwidths(
    profile: NetworkProfile, own: RankNetwork, *, peers: Sequence[int]
) -> list[_Deviation]:
    bandwidth_bytes_per_s = profile.bandwidth_bytes_per_s
    assert bandwidth_bytes_per_s is not None
    shaped_s = _rtts_s(own.shaped)
    measured = {peer.rank: peer.bytes_per_s for peer in own.bandwidths}
    found = []
    for peer in peers:
        way = f"from rank {own.rank} on {own.agent_id} to rank {peer}"
        if peer not in measured:
            found.append((math.inf, f"the bandwidth {way} was not measured"))
        elif not matches_bandwidth(profile, rtt_s=shaped_s[peer], bytes_per_s=measured[peer]):
            found.append(
                (
                    abs(measured[peer] - bandwidth_bytes_per_s),
                    f"the bandwidth {way} is {bit_rate(measured[peer])},"
                    f" expected {bit_rate(bandwidth_bytes_per_s)}",
                )
            )
    return found


def _peers(own: RankNetwork, ranks: Sequence[RankNetwork]) -> list[int]:
    return [other.rank for other in ranks if other.rank != own.rank]


def _rtts_s(peers: Iterable[PeerRtt]) -> Mapping[int, float]:
    return {peer.rank: peer.rtt_s for peer in peers}
