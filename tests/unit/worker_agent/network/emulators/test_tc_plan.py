"""What the kernel is told for a profile."""

from __future__ import annotations

import ipaddress

import pytest

from farm.configuration.spec import NetworkProfile
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_netem import TcNetem
from worker_agent.network.emulators.tc_plan import (
    GANG_CLASS,
    ROOT,
    UNLIMITED_BYTES_PER_S,
    TcPlan,
    make_plan,
    queued_packets,
)

PEER = ipaddress.ip_address("10.99.0.3")


def plan(profile: NetworkProfile, *peers: str, spared_ports: tuple[int, ...] = ()) -> TcPlan:
    found = [ipaddress.ip_address(peer) for peer in peers or (str(PEER),)]
    return make_plan(profile, peers=found, spared_ports=spared_ports)


def test_netem_is_told_microseconds_and_percent() -> None:
    queue = plan(
        NetworkProfile(one_way_delay_s=0.02, jitter_s=0.0005, packet_loss_ratio=0.001)
    ).queue

    assert queue is not None
    assert (queue.delay_us, queue.jitter_us) == (20_000, 500)
    assert queue.loss_ratio == 0.001


@pytest.mark.parametrize(("jitter_s", "is_served"), [(0.02, True), (2.0, True), (2.2, False)])
def test_a_jitter_that_netem_would_cut_off_is_not_promised(
    jitter_s: float, is_served: bool
) -> None:
    emulator = TcNetem(Site(state_dir="/nowhere", interface="eth0", cpus=(0,), spared_ports=()))
    profile = NetworkProfile(one_way_delay_s=5.0, jitter_s=jitter_s)

    assert emulator.serves(profile) is is_served


def test_netem_itself_limits_the_bandwidth() -> None:
    queue = plan(NetworkProfile(bandwidth_bytes_per_s=1.25e7)).queue

    assert queue is not None
    assert queue.rate_bytes_per_s == 12_500_000


def test_a_profile_without_a_bandwidth_does_not_limit_any() -> None:
    queue = plan(NetworkProfile(one_way_delay_s=0.01)).queue

    assert queue is not None
    assert queue.rate_bytes_per_s is None


@pytest.mark.parametrize("bandwidth", [None, 1.25e8, 1.25e9, 1e300])
@pytest.mark.parametrize("one_way_delay_s", [0.001, 0.04, 10.0])
def test_the_queue_holds_what_is_under_way_in_full_packets(
    one_way_delay_s: float, bandwidth: float | None
) -> None:
    profile = NetworkProfile(
        one_way_delay_s=one_way_delay_s, jitter_s=0.001, bandwidth_bytes_per_s=bandwidth
    )
    queue = plan(profile).queue

    assert queue is not None
    under_way = min(bandwidth or 1.25e9, UNLIMITED_BYTES_PER_S) * (one_way_delay_s + 0.001)
    assert queue.limit > under_way / 1514
    assert queue.limit < 2**31


@pytest.mark.parametrize("bandwidth", [2000.0, 1.25e5, 1.25e6, 1.25e7, 1.25e9])
@pytest.mark.parametrize("one_way_delay_s", [0.0, 0.02, 0.08])
def test_behind_a_limit_50_ms_may_wait_or_32_packets(
    one_way_delay_s: float, bandwidth: float
) -> None:
    profile = NetworkProfile(one_way_delay_s=one_way_delay_s, bandwidth_bytes_per_s=bandwidth)
    queue = plan(profile).queue

    assert queue is not None
    in_flight = bandwidth * one_way_delay_s / 1514
    waiting = queue.limit - in_flight
    assert waiting == pytest.approx(max(32, bandwidth * 0.05 / 1514), abs=2)
    assert queued_packets(bandwidth) == pytest.approx(waiting, abs=1)


def test_each_peer_is_matched_by_its_destination_address() -> None:
    v4, v6 = plan(NetworkProfile(), "10.99.0.3", "fd99::1:2").filters

    assert (v4.protocol, v4.keys) == (0x0800, ("0x0a630003/0xffffffff+16",))
    assert v6.protocol == 0x86DD
    assert v6.keys == (
        "0xfd990000/0xffffffff+24",
        "0x00000000/0xffffffff+28",
        "0x00000000/0xffffffff+32",
        "0x00010002/0xffffffff+36",
    )
    assert {v4.target, v6.target} == {GANG_CLASS}


def test_an_address_that_comes_twice_is_matched_once() -> None:
    assert len(plan(NetworkProfile(), "10.99.0.3", "10.99.0.3").filters) == 1


def test_spared_ports_are_asked_before_any_peer_and_pass_the_root_unshaped() -> None:
    *spared, peer = plan(NetworkProfile(), spared_ports=(6379,)).filters

    assert {f.keys for f in spared} == {
        ("0x06/0xff+9", "0x18eb/0xffff+20"),
        ("0x06/0xff+9", "0x18eb/0xffff+22"),
        ("0x06/0xff+6", "0x18eb/0xffff+40"),
        ("0x06/0xff+6", "0x18eb/0xffff+42"),
    }
    assert {f.target for f in spared} == {ROOT}
    assert all(f.prio < peer.prio for f in spared)


def test_the_kernel_gets_a_priority_of_its_own_for_each_protocol() -> None:
    filters = plan(NetworkProfile(), "10.99.0.3", "fd99::2", spared_ports=(22,)).filters

    protocols: dict[int, set[int]] = {}
    for one in filters:
        protocols.setdefault(one.prio, set()).add(one.protocol)
    assert all(len(of_prio) == 1 for of_prio in protocols.values())
