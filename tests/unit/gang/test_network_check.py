"""What was measured, held against what was asked for."""

from __future__ import annotations

import dataclasses

import pytest

from farm.configuration.spec import NetworkProfile
from farm.gang.network_check import (
    RankNetwork,
    find_deviations,
    find_leftovers,
    is_settled,
    matches_bandwidth,
    matches_profile,
    verification_s,
)
from farm.messages.reports import PeerBandwidth, PeerRtt
from tests.facts import lacking

BASE_S = 0.001
DELAYED = NetworkProfile(one_way_delay_s=0.02)  # expected 41 ms, and 5.1 ms more or less


@pytest.mark.parametrize(
    ("shaped_s", "is_right"),
    [(0.0358, False), (0.036, True), (0.041, True), (0.046, True), (0.0462, False)],
)
def test_a_round_trip_may_be_off_by_a_tenth_and_a_millisecond(
    shaped_s: float, is_right: bool
) -> None:
    assert matches_profile(DELAYED, untouched_s=BASE_S, shaped_s=shaped_s) is is_right


def test_what_limits_the_bandwidth_alone_must_not_delay() -> None:
    limited = NetworkProfile(bandwidth_bytes_per_s=10e6)
    assert matches_profile(limited, untouched_s=BASE_S, shaped_s=0.002)
    assert not matches_profile(limited, untouched_s=BASE_S, shaped_s=0.0022)


def test_on_a_slow_link_probes_wait_for_each_other() -> None:
    slow = NetworkProfile(bandwidth_bytes_per_s=10_000)
    # Each way a probe of 100 bytes may find an answer of 100 bytes before it, for every peer.
    assert matches_profile(slow, untouched_s=BASE_S, shaped_s=0.042)
    assert not matches_profile(slow, untouched_s=BASE_S, shaped_s=0.0422)
    assert matches_profile(slow, untouched_s=BASE_S, shaped_s=0.082, peer_count=2)


def test_jitter_may_move_the_median_by_itself() -> None:
    jittery = NetworkProfile(one_way_delay_s=0.02, jitter_s=0.01)
    assert matches_profile(jittery, untouched_s=BASE_S, shaped_s=0.056)
    assert not matches_profile(jittery, untouched_s=BASE_S, shaped_s=0.057)


def test_where_many_packets_are_lost_only_too_short_a_round_trip_is_wrong() -> None:
    lossy = NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.3)
    assert matches_profile(lossy, untouched_s=BASE_S, shaped_s=0.24)
    assert not matches_profile(lossy, untouched_s=BASE_S, shaped_s=0.021)


@pytest.mark.parametrize(
    ("ratio", "is_right"), [(0.89, False), (0.91, True), (1.09, True), (1.11, False), (80.0, False)]
)
def test_too_much_bandwidth_is_as_wrong_as_too_little(ratio: float, is_right: bool) -> None:
    limited = NetworkProfile(bandwidth_bytes_per_s=1e6)
    found = matches_bandwidth(limited, rtt_s=BASE_S, bytes_per_s=ratio * 1e6)
    assert found is is_right


@pytest.mark.parametrize(
    ("profile", "rtt_s"),
    [
        (NetworkProfile(bandwidth_bytes_per_s=1e6, packet_loss_ratio=0.001), BASE_S),
        (NetworkProfile(bandwidth_bytes_per_s=1e6, one_way_delay_s=0.01, jitter_s=0.001), 0.02),
        (NetworkProfile(bandwidth_bytes_per_s=1e6, one_way_delay_s=0.15), 0.3),
        (NetworkProfile(bandwidth_bytes_per_s=125e6, one_way_delay_s=0.02), 0.04),
        (NetworkProfile(bandwidth_bytes_per_s=1.25e9), BASE_S),
    ],
    ids=["loss", "jitter", "long way", "much under way", "wide"],
)
def test_a_link_that_tcp_may_not_fill_must_only_not_be_too_wide(
    profile: NetworkProfile, rtt_s: float
) -> None:
    limit = profile.bandwidth_bytes_per_s
    assert limit is not None
    assert matches_bandwidth(profile, rtt_s=rtt_s, bytes_per_s=0.1 * limit)
    assert not matches_bandwidth(profile, rtt_s=rtt_s, bytes_per_s=1.5 * limit)


def test_what_waits_behind_a_lost_packet_may_come_on_top() -> None:
    lossy = NetworkProfile(bandwidth_bytes_per_s=1e6, packet_loss_ratio=0.001)
    # Of half a second's bytes, what is under way in 40 ms and a queue of 45 ms.
    assert matches_bandwidth(lossy, rtt_s=0.04, bytes_per_s=1.25e6)
    assert not matches_bandwidth(lossy, rtt_s=0.04, bytes_per_s=1.39e6)


def measured(rank: int, shaped: dict[int, float], *, peers: tuple[int, ...]) -> RankNetwork:
    return RankNetwork(
        rank=rank,
        agent_id=f"vm-{rank}",
        untouched=[PeerRtt(rank=peer, rtt_s=BASE_S, probe_count=20) for peer in peers],
        shaped=[PeerRtt(rank=r, rtt_s=s, probe_count=20) for r, s in shaped.items()],
    )


def test_the_worst_deviation_comes_first_and_a_missing_one_before_it() -> None:
    ranks = [
        measured(0, {1: 0.041, 2: 0.03}, peers=(1, 2)),
        measured(1, {0: 0.002, 2: 0.041}, peers=(0, 2)),
        measured(2, {1: 0.041}, peers=(0, 1)),
    ]
    missing, worst, better = find_deviations(DELAYED, ranks)
    assert lacking(missing, "from rank 2", "vm-2", "to rank 0", "not measured") == []
    expected = ("41.0 ms", "1.00 ms", "20.0 ms")  # of which the last counts twice
    assert lacking(worst, "from rank 1", "vm-1", "to rank 0", "2.00 ms", *expected) == []
    assert lacking(better, "from rank 0", "vm-0", "to rank 2", "30.0 ms", *expected) == []


def test_a_rank_has_settled_once_all_its_round_trips_are_right() -> None:
    half = measured(0, {1: 0.041, 2: 0.021}, peers=(1, 2))
    assert not is_settled(DELAYED, untouched=half.untouched, shaped=half.shaped)
    whole = measured(0, {1: 0.041, 2: 0.041}, peers=(1, 2))
    assert is_settled(DELAYED, untouched=whole.untouched, shaped=whole.shaped)


def test_a_gang_is_shaped_by_one_emulator() -> None:
    one, two = (measured(r, {1 - r: 0.041}, peers=(1 - r,)) for r in range(2))
    netem = dataclasses.replace(one, emulator="tc_netem")
    assert find_deviations(DELAYED, [netem, dataclasses.replace(two, emulator="tc_netem")]) == ()
    [two_of_them] = find_deviations(DELAYED, [netem, dataclasses.replace(two, emulator="vde_link")])
    first, _, second = two_of_them.partition("tc_netem")
    assert lacking(first, "rank 0", "vm-0") == []
    assert lacking(second, "rank 1", "vm-1", "vde_link") == []


def carrying(own: RankNetwork, bytes_per_s: dict[int, float]) -> RankNetwork:
    bandwidths = tuple(
        PeerBandwidth(rank=rank, bytes_per_s=value, byte_count=10**6)
        for rank, value in bytes_per_s.items()
    )
    return dataclasses.replace(own, bandwidths=bandwidths)


LIMITED = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=1.25e6)


def test_the_worst_bandwidth_comes_first_and_a_missing_one_before_it() -> None:
    shaped = {r: {p: 0.041 for p in range(3) if p != r} for r in range(3)}
    plain = [measured(r, shaped[r], peers=tuple(shaped[r])) for r in range(3)]
    ranks = [
        carrying(plain[0], {1: 1.2e6, 2: 1.0e6}),
        carrying(plain[1], {0: 100e6, 2: 1.25e6}),
        carrying(plain[2], {1: 1.25e6}),
    ]
    missing, worst, better = find_deviations(LIMITED, ranks)
    assert lacking(missing, "bandwidth", "from rank 2", "vm-2", "to rank 0", "not measured") == []
    expected = "10.0 Mbit/s"
    assert lacking(worst, "from rank 1", "vm-1", "to rank 0", "800 Mbit/s", expected) == []
    assert lacking(better, "from rank 0", "vm-0", "to rank 2", "8.00 Mbit/s", expected) == []


def test_bandwidths_are_not_missed_where_a_round_trip_is_wrong() -> None:
    ranks = [measured(0, {1: 0.041}, peers=(1,)), measured(1, {0: 0.021}, peers=(0,))]
    [deviation] = find_deviations(LIMITED, ranks)
    assert lacking(deviation, "round trip", "from rank 1", "vm-1", "to rank 0", "21.0 ms") == []


def test_a_way_that_has_become_quicker_is_back() -> None:
    busy = PeerRtt(rank=1, rtt_s=0.02, probe_count=20)
    quick = dataclasses.replace(busy, rtt_s=0.0002)
    own = RankNetwork(rank=0, agent_id="vm-0", untouched=[busy], shaped=[quick])
    assert find_leftovers([own]) == ()
    slower = dataclasses.replace(own, untouched=[quick], shaped=[busy])
    [left] = find_leftovers([slower])
    assert lacking(left, "from rank 0", "vm-0", "to rank 1") == []
    assert lacking(left, "20.0 ms after", "200 µs before") == []


def test_a_long_delay_has_the_time_for_all_its_probes() -> None:
    slow = NetworkProfile(one_way_delay_s=1.0)
    assert verification_s(slow, agent_count=2) >= 3 * 20 * 2.0
    assert verification_s(slow, agent_count=9) >= 2 * 3 * 20 * 2.0
    assert verification_s(NetworkProfile(one_way_delay_s=0.02), agent_count=2) < 10
