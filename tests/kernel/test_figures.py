"""What tc_netem does to packets, within stated bounds."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress
from tests.kernel.traffic import Connection, one_way_delays_s, stream
from tests.machine.namespaces import Namespace, two_hosts
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_netem import TcNetem
from worker_agent.network.emulators.tc_plan import PACKET_BYTES, queued_packets

NEAR, FAR, STRANGER = "10.99.0.1", "10.99.0.2", "10.99.0.3"
NEAR_6, FAR_6 = "fd99::1", "fd99::2"
Hosts = tuple[Namespace, Namespace]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with two_hosts() as both:
        yield both


@contextmanager
def shaped(
    hosts: Hosts, profile: NetworkProfile, *, near: str = NEAR, far: str = FAR
) -> Iterator[None]:
    """Both hosts shape the way to each other, and find it unchanged at the end."""
    emulators = []
    for host, peer in zip(hosts, (far, near), strict=True):
        site = Site(state_dir=f"/{host.name}", interface="eth0", cpus=(0,), spared_ports=())
        emulator = TcNetem(site)
        address = RankAddress(rank=1, host=peer, probe_port=20000, trainer_ports=())
        host.run(lambda e=emulator, a=address: e.apply(profile, (a,)))  # type: ignore[misc]
        emulators.append((host, emulator))
    try:
        yield
        for host, emulator in emulators:
            host.run(emulator.check)
    finally:
        for host, emulator in emulators:
            host.run(emulator.clear)


def median_s(source: Namespace, target: Namespace, address: str) -> float:
    return statistics.median(one_way_delays_s(source, target, address, count=60, gap_s=0.005))


@pytest.mark.parametrize("delay_s", [0.005, 0.02, 0.08])
@pytest.mark.parametrize(
    ("near_at", "far_at"), [(NEAR, FAR), (NEAR_6, FAR_6)], ids=["IPv4", "IPv6"]
)
def test_packets_are_late_by_the_delay_in_both_directions_and_to_the_peer_alone(
    hosts: Hosts, delay_s: float, near_at: str, far_at: str
) -> None:
    near, far = hosts
    base_s = median_s(near, far, far_at)
    with shaped(hosts, NetworkProfile(one_way_delay_s=delay_s), near=near_at, far=far_at):
        there_s, back_s = median_s(near, far, far_at), median_s(far, near, near_at)
        stranger_s = median_s(near, far, STRANGER)

    for late_s in (there_s - base_s, back_s - base_s):
        assert delay_s * 0.99 - 0.0001 <= late_s <= delay_s * 1.03 + 0.0005
    assert stranger_s <= base_s + 0.0005


def test_jitter_is_uniform_around_the_delay(hosts: Hosts) -> None:
    with shaped(hosts, NetworkProfile(one_way_delay_s=0.02, jitter_s=0.005)):
        delays_s = one_way_delays_s(*hosts, FAR, count=600, gap_s=0.002)

    assert 0.0195 <= statistics.mean(delays_s) <= 0.021
    assert 0.0026 <= statistics.pstdev(delays_s) <= 0.0035
    assert 0.0149 <= min(delays_s) <= 0.0156


@pytest.mark.parametrize(("ratio", "count"), [(0.01, 3000), (0.1, 1500)])
def test_packets_are_lost_at_the_ratio(hosts: Hosts, ratio: float, count: int) -> None:
    with shaped(hosts, NetworkProfile(packet_loss_ratio=ratio)):
        arrived = len(one_way_delays_s(*hosts, FAR, count=count, gap_s=0.0007))

    deviation = (ratio * (1 - ratio) / count) ** 0.5
    assert 1 - arrived / count == pytest.approx(ratio, abs=4 * deviation)


@pytest.mark.parametrize(
    ("mbit_per_s", "delay_s", "least_share"),
    [(10, 0.0, 0.95), (10, 0.02, 0.95), (100, 0.0, 0.95), (100, 0.02, 0.93), (100, 0.08, 0.4)],
)
def test_a_stream_gets_the_bandwidth_and_leaves_the_round_trip_short(
    hosts: Hosts, mbit_per_s: float, delay_s: float, least_share: float
) -> None:
    bytes_per_s = mbit_per_s * 125e3
    settle_s = 1 + 20 * delay_s
    with shaped(hosts, NetworkProfile(bandwidth_bytes_per_s=bytes_per_s, one_way_delay_s=delay_s)):
        found = stream(*hosts, FAR, settle_s=settle_s, timed_s=2.5)

    assert least_share * mbit_per_s <= found.bits_per_s / 1e6 <= 1.05 * mbit_per_s
    queue_s = queued_packets(bytes_per_s) * PACKET_BYTES / bytes_per_s
    assert 2 * delay_s <= found.loaded_rtt_s <= 2 * delay_s + queue_s + 0.01


def test_a_short_message_takes_as_long_as_its_bytes_at_the_bandwidth(hosts: Hosts) -> None:
    with shaped(hosts, NetworkProfile(bandwidth_bytes_per_s=1.25e6)):
        connection = Connection(*hosts, FAR)
        # TCP opens its window first.
        warm_s = connection.message_s(400_000)
        times_s = [connection.message_s(100_000) for _ in range(5)]
        connection.close()

    assert warm_s >= 0.3
    assert statistics.median(times_s) == pytest.approx(0.08, abs=0.005)


def test_the_interface_is_left_as_it_was(hosts: Hosts) -> None:
    def look() -> str:
        words = [f"tc {what} show dev eth0" for what in ("qdisc", "class", "filter")]
        command = ["ip", "netns", "exec", hosts[0].name, "sh", "-c", "; ".join(words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    before = look()
    with shaped(hosts, NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=1e6)):
        assert "netem" in look()
    assert look() == before
