"""What was measured, held against what was asked for."""

from __future__ import annotations

import dataclasses

import pytest

from farm.core.network_check import RankRtts, find_deviations, is_as_asked, is_settled
from farm.core.reports import PeerRtt
from farm.core.spec import NetworkProfile

BASE_S = 0.001
DELAYED = NetworkProfile(one_way_delay_s=0.02)  # expected 41 ms, and 5.1 ms more or less


@pytest.mark.parametrize(
    ("shaped_s", "is_right"),
    [(0.0358, False), (0.036, True), (0.041, True), (0.046, True), (0.0462, False)],
)
def test_a_round_trip_may_be_off_by_a_tenth_and_a_millisecond(
    shaped_s: float, is_right: bool
) -> None:
    assert is_as_asked(DELAYED, untouched_s=BASE_S, shaped_s=shaped_s) is is_right


def test_what_limits_the_bandwidth_alone_must_not_delay() -> None:
    limited = NetworkProfile(bandwidth_bytes_per_s=1e6)
    assert is_as_asked(limited, untouched_s=BASE_S, shaped_s=0.002)
    assert not is_as_asked(limited, untouched_s=BASE_S, shaped_s=0.0022)


def test_jitter_may_move_the_median_by_itself() -> None:
    jittery = NetworkProfile(one_way_delay_s=0.02, jitter_s=0.01)
    assert is_as_asked(jittery, untouched_s=BASE_S, shaped_s=0.056)
    assert not is_as_asked(jittery, untouched_s=BASE_S, shaped_s=0.057)


def test_where_many_packets_are_lost_only_too_short_a_round_trip_is_wrong() -> None:
    lossy = NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.3)
    assert is_as_asked(lossy, untouched_s=BASE_S, shaped_s=0.24)
    assert not is_as_asked(lossy, untouched_s=BASE_S, shaped_s=0.021)


def measured(rank: int, shaped: dict[int, float], *, peers: tuple[int, ...]) -> RankRtts:
    return RankRtts(
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
    assert find_deviations(DELAYED, ranks) == (
        "the round trip from rank 2 on vm-2 to rank 0 was not measured",
        "the round trip from rank 1 on vm-1 to rank 0 takes 2 ms, expected 41 ms: 1 ms and twice"
        " the one-way delay of 20 ms",
        "the round trip from rank 0 on vm-0 to rank 2 takes 30 ms, expected 41 ms: 1 ms and twice"
        " the one-way delay of 20 ms",
    )


def test_a_rank_has_settled_once_all_its_round_trips_are_right() -> None:
    half = measured(0, {1: 0.041, 2: 0.021}, peers=(1, 2))
    assert not is_settled(DELAYED, untouched=half.untouched, shaped=half.shaped)
    whole = measured(0, {1: 0.041, 2: 0.041}, peers=(1, 2))
    assert is_settled(DELAYED, untouched=whole.untouched, shaped=whole.shaped)


def test_a_gang_is_shaped_by_one_emulator() -> None:
    one, two = (measured(r, {1 - r: 0.041}, peers=(1 - r,)) for r in range(2))
    netem = dataclasses.replace(one, emulator="tc_netem")
    assert find_deviations(DELAYED, [netem, dataclasses.replace(two, emulator="tc_netem")]) == ()
    assert find_deviations(DELAYED, [netem, dataclasses.replace(two, emulator="vde_link")]) == (
        "rank 0 on vm-0 was shaped by tc_netem, rank 1 on vm-1 was shaped by vde_link: name one"
        " emulator in the sweep",
    )
