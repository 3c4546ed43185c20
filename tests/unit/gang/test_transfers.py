"""How much is sent to try a link, and how long that may take."""

from __future__ import annotations

import pytest

from farm.configuration.spec import LEAST_BANDWIDTH_BYTES_PER_S, NetworkProfile
from farm.gang.transfers import (
    SEGMENT_BYTES,
    partners,
    plan_load,
    plan_transfer,
    transfers_s,
)
from worker_agent.network.emulators.tc_plan import SHAPED_QUEUE_S


@pytest.mark.parametrize("bytes_per_s", [LEAST_BANDWIDTH_BYTES_PER_S, 12_500, 1.25e6, 1.25e11])
@pytest.mark.parametrize("rtt_s", [0.0001, 0.04, 1.0])
def test_a_transfer_is_bounded_in_bytes_and_in_time(bytes_per_s: float, rtt_s: float) -> None:
    plan = plan_transfer(bytes_per_s, rtt_s=rtt_s)
    assert 0 < plan.untimed_bytes < plan.byte_count <= 2**28
    assert plan.first_bytes >= SEGMENT_BYTES
    assert plan.first_bytes <= max(plan.window_bytes, SEGMENT_BYTES)
    # It is over when it has taken some twice as long as it should.
    assert plan.byte_count / bytes_per_s < plan.limit_s < 70 + 40 * rtt_s


def test_what_is_under_way_fills_the_link_and_no_more_than_tc_netems_queue() -> None:
    plan = plan_transfer(1.25e6, rtt_s=0.04)
    assert plan.window_bytes == pytest.approx(1.25e6 * 0.085, rel=0.02)
    headers = 1514 / 1448
    assert headers * (plan.window_bytes - 1.25e6 * 0.04) < 1.25e6 * SHAPED_QUEUE_S
    assert plan.untimed_bytes > 4 * 1.25e6 * 0.04


def test_a_slow_link_is_timed_over_some_packets_all_the_same() -> None:
    plan = plan_transfer(LEAST_BANDWIDTH_BYTES_PER_S, rtt_s=0.001)
    assert plan.byte_count - plan.untimed_bytes == 24 * SEGMENT_BYTES
    assert plan.first_bytes == SEGMENT_BYTES


def test_the_time_for_a_gang_grows_with_its_meetings() -> None:
    profile = NetworkProfile(bandwidth_bytes_per_s=1.25e6)
    two, three, four, eight = (transfers_s(profile, agent_count=n) for n in (2, 3, 4, 8))
    loads_s = 2 * (plan_load(1.25e6, rtt_s=0.0) or pytest.fail("it takes a second")).limit_s
    assert three - 2 * loads_s == pytest.approx(3 * (two - loads_s))
    assert four == pytest.approx(three - loads_s), "two pairs meet at once"
    assert eight - loads_s == pytest.approx(7 * (two - loads_s))
    assert transfers_s(profile, agent_count=1) == 0.0
    assert transfers_s(NetworkProfile(one_way_delay_s=1.0), agent_count=8) == 0.0


@pytest.mark.parametrize("bytes_per_s", [20_000, 1.25e6, 1.25e8, 1.25e11])
@pytest.mark.parametrize("rtt_s", [0.0001, 0.04, 0.5])
def test_a_load_is_sent_at_once_and_is_bounded(bytes_per_s: float, rtt_s: float) -> None:
    plan = plan_load(bytes_per_s, rtt_s=rtt_s)
    assert plan is not None
    assert plan.first_bytes == plan.window_bytes == plan.byte_count <= 2**28
    assert plan.byte_count >= 96 * SEGMENT_BYTES
    assert plan.byte_count / bytes_per_s < plan.limit_s < 21 + 16 * rtt_s


def test_a_way_that_takes_too_long_to_fill_is_not_loaded() -> None:
    assert plan_load(LEAST_BANDWIDTH_BYTES_PER_S, rtt_s=0.001) is None
    assert plan_load(1.25e6, rtt_s=2.0) is None


def test_three_ranks_meet_one_after_the_other() -> None:
    assert [partners(rank, 3) for rank in range(3)] == [(1, 2), (2, 0), (1, 0)]
