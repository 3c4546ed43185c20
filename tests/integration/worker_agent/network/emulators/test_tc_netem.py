"""The kernel's emulation on real interfaces of hosts that are network namespaces."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec
from farm.gang.transfers import plan_transfer
from farm.messages.commands import RankAddress
from tests.machine.namespaces import Namespace, needs_root, two_hosts
from worker_agent.machine.machine import interface_of
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_netem import TcNetem, find_obstacle
from worker_agent.network.probing.transfer import end_transfers, send_transfer, take_transfers

pytestmark = [pytest.mark.root, needs_root]
obstacle = find_obstacle() if os.geteuid() == 0 else "not root"
# Where the kernel has no netem, these run in the guest of `make kernel`.
needs_netem = pytest.mark.skipif(obstacle is not None, reason=str(obstacle))

LIMIT_BYTES_PER_S = 2.5e6
BANDWIDTH = NetworkProfile(bandwidth_bytes_per_s=LIMIT_BYTES_PER_S)
SENT_BYTES = 1_500_000
BROKER_PORT = 26379
# With everything netem has where it is there, and without it all queues and filters beside it.
APPLIED = (
    NetworkProfile(one_way_delay_s=0.001, bandwidth_bytes_per_s=LIMIT_BYTES_PER_S)
    if obstacle is None
    else NetworkProfile()
)
Hosts = tuple[Namespace, Namespace]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with two_hosts() as both:
        yield both


def emulator(interface: str = "eth0", *, state_dir: str = "/nowhere") -> TcNetem:
    site = Site(state_dir=state_dir, interface=interface, cpus=(0,), spared_ports=(BROKER_PORT,))
    return TcNetem(site)


def rank(host: str) -> RankAddress:
    return RankAddress(rank=1, host=host, probe_port=20000, trainer_ports=(20001,))


def speed(hosts: Hosts, address: str, *, port: int = 0) -> float:
    """What the receiver saw from its first byte to its last, in bytes per second."""
    near, far = hosts
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = far.run(lambda: socket.create_server((address, port), family=family))
    with listening:
        place = listening.getsockname()[:2]
        sending = near.run(lambda: socket.create_connection(place, timeout=60))
        receiving, _ = listening.accept()
        with sending, receiving:
            receiving.settimeout(20)
            sending.setblocking(False)
            data, received, first_at = memoryview(bytes(SENT_BYTES)), 0, 0.0
            while received < SENT_BYTES:
                with contextlib.suppress(BlockingIOError):
                    data = data[sending.send(data) :] if data else data
                got = len(receiving.recv(65536))
                first_at = first_at or time.monotonic()
                received += got
            return received / max(1e-6, time.monotonic() - first_at)


@needs_netem
@pytest.mark.parametrize(
    ("peer", "other"), [("10.99.0.2", "10.99.0.3"), ("fd99::2", "fd99::3")], ids=["IPv4", "IPv6"]
)
def test_only_the_way_to_the_peer_gets_the_bandwidth_of_the_profile(
    hosts: Hosts, peer: str, other: str
) -> None:
    near, _ = hosts
    near.run(lambda: emulator().apply(BANDWIDTH, (rank(peer),)))

    # A burst and a packet or two may pass before the limit holds.
    assert 0.5 * LIMIT_BYTES_PER_S < speed(hosts, peer) < 1.2 * LIMIT_BYTES_PER_S
    assert speed(hosts, other) > 4 * LIMIT_BYTES_PER_S

    near.run(emulator().clear)
    assert speed(hosts, peer) > 4 * LIMIT_BYTES_PER_S


@needs_netem
@pytest.mark.parametrize("address", ["10.99.0.2", "fd99::2"])
def test_a_transfer_counts_bytes_as_the_kernel_does(hosts: Hosts, address: str) -> None:
    near, far = hosts
    near.run(lambda: emulator().apply(BANDWIDTH, (rank(address),)))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    deadline = time.monotonic() + 30
    with far.run(lambda: socket.create_server((address, 0), family=family)) as listening:
        place = listening.getsockname()[:2]
        sending = near.run(lambda: socket.create_connection(place, timeout=60))
        taking, _ = listening.accept()
        taker = threading.Thread(
            target=take_transfers, args=(taking,), kwargs={"deadline": deadline}
        )
        taker.start()
        with sending, taking:
            plan = plan_transfer(LIMIT_BYTES_PER_S, rtt_s=0.0002)
            arrived = send_transfer(sending, plan, deadline=deadline)
            end_transfers(sending, deadline=deadline)
            taker.join()

    assert arrived.is_whole
    # A busy machine may keep the kernel from its timers; more than the limit never passes.
    assert 0.8 * LIMIT_BYTES_PER_S < arrived.bytes_per_s < 1.03 * LIMIT_BYTES_PER_S


@needs_netem
@pytest.mark.parametrize("address", ["10.99.0.2", "fd99::2"])
def test_a_broker_on_a_peers_machine_is_not_shaped(hosts: Hosts, address: str) -> None:
    hosts[0].run(lambda: emulator().apply(BANDWIDTH, (rank(address),)))

    assert speed(hosts, address, port=BROKER_PORT) > 4 * LIMIT_BYTES_PER_S


def test_clearing_leaves_the_queue_that_was_there(hosts: Hosts) -> None:
    near, _ = hosts
    before = near.root_queue()
    near.run(lambda: emulator().apply(APPLIED, (rank("10.99.0.2"), rank("fd99::3"))))
    assert near.root_queue().startswith("qdisc htb bf10: root")

    near.run(emulator().clear)
    near.run(emulator().clear)
    assert near.root_queue() == before


def test_what_was_applied_is_found_as_it_was_although_packets_have_passed(hosts: Hosts) -> None:
    near, _ = hosts
    emulating = emulator()
    near.run(lambda: emulating.apply(APPLIED, (rank("10.99.0.2"), rank("fd99::2"))))
    speed(hosts, "10.99.0.2")
    speed(hosts, "10.99.0.3")  # beside the limit

    near.run(emulating.check)
    near.run(emulating.clear)
    near.run(emulating.check)  # nothing is applied that could be missed


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("tc qdisc del dev eth0 root", "its queue bf10: is gone .and [0-9]+ more"),
        (
            "tc class change dev eth0 parent bf10: classid bf10:1 htb rate 1gbit quantum 60000",
            "its class bf10:1 has been changed$",
        ),
        ("tc filter del dev eth0 parent bf10: prio 11", "its filter [0-9a-f]+ is gone$"),
        ("tc qdisc replace dev eth0 root pfifo", "its queue bf10: is gone"),
        ("ip route add 10.99.0.2/32 dev lo", "rank 1 at 10.99.0.2 is reached over lo"),
        ("ip link del eth0", "cannot be|is gone|is reached over nothing"),
    ],
    ids=["queue", "class", "filter", "other queue", "route", "interface"],
)
def test_what_others_take_away_or_change_meanwhile_is_noticed(
    hosts: Hosts, command: str, message: str
) -> None:
    near, _ = hosts
    site = Site(state_dir="/nowhere", interface="eth0", cpus=(0,), spared_ports=())
    emulating = TcNetem(site)
    near.run(lambda: emulating.apply(APPLIED, (rank("10.99.0.2"), rank("fd99::2"))))
    subprocess.run(["ip", "netns", "exec", near.name, *command.split()], timeout=60, check=True)

    with pytest.raises(EmulationFailed, match=message):
        near.run(emulating.check)


def test_a_queue_that_somebody_else_has_set_is_neither_replaced_nor_cleared(hosts: Hosts) -> None:
    near, _ = hosts
    tc(near, "qdisc add dev eth0 root handle 7: tbf rate 1gbit burst 100k latency 10ms")
    before = near.root_queue()

    with pytest.raises(EmulationFailed, match=r"eth0 has the root queue 'tbf' 7:.*tc qdisc del"):
        near.run(lambda: emulator().apply(APPLIED, (rank("10.99.0.2"),)))
    near.run(emulator().clear)
    assert near.root_queue() == before


def test_two_agents_on_one_interface_do_not_undo_each_other(hosts: Hosts) -> None:
    near, _ = hosts
    near.run(lambda: emulator().apply(APPLIED, (rank("10.99.0.2"),)))
    other = emulator(state_dir="/elsewhere")

    with pytest.raises(EmulationFailed, match="eth0 is shaped by another agent of this machine"):
        near.run(lambda: other.apply(APPLIED, (rank("10.99.0.3"),)))
    near.run(other.clear)  # as it does after every failure, and at its start
    assert near.root_queue().startswith("qdisc htb bf10: root")
    near.run(emulator().clear)
    assert not near.root_queue().startswith("qdisc htb")


def test_what_was_applied_is_found_under_another_name_of_its_interface(hosts: Hosts) -> None:
    near, _ = hosts
    near.run(lambda: emulator().apply(APPLIED, (rank("10.99.0.2"),)))
    for words in (["down"], ["name", "lan0"], ["up"]):
        near.ip("link", "set", "lan0" if words == ["up"] else "eth0", *words)
    assert near.root_queue("lan0").startswith("qdisc htb bf10: root")

    near.run(emulator().clear)
    assert not near.root_queue("lan0").startswith("qdisc htb")


@pytest.mark.parametrize("other", ["lan0", "a-name-of-more-than-15-bytes", "eth0:1"])
def test_an_interface_may_be_named_by_an_alternative_name_or_a_label(
    hosts: Hosts, other: str
) -> None:
    near, _ = hosts
    if ":" in other:
        near.ip("addr", "add", "10.99.0.7/24", "dev", "eth0", "label", other)
    else:
        near.ip("link", "property", "add", "dev", "eth0", "altname", other)

    assert near.run(lambda: interface_of(other, "10.99.0.1")) == "eth0"
    near.run(lambda: emulator(other).apply(APPLIED, (rank("10.99.0.2"),)))
    assert near.root_queue().startswith("qdisc htb bf10: root")


def test_an_address_with_a_label_belongs_to_its_interface(hosts: Hosts) -> None:
    near, _ = hosts
    near.ip("addr", "add", "10.99.0.7/24", "dev", "eth0", "label", "eth0:1")
    assert near.run(lambda: interface_of(None, "10.99.0.7")) == "eth0"


@pytest.mark.parametrize("name", ["wan7", "a-name-of-more-than-15-bytes"])
def test_an_interface_that_is_not_there_is_refused(hosts: Hosts, name: str) -> None:
    near, _ = hosts
    with pytest.raises(InvalidSpec, match=rf"AGENT_INTERFACE: expected one of .*eth0.*{name}"):
        near.run(lambda: interface_of(name, "10.99.0.1"))


def test_an_interface_that_has_gone_has_nothing_to_clear(hosts: Hosts) -> None:
    near, _ = hosts
    near.run(lambda: emulator().apply(APPLIED, (rank("10.99.0.2"),)))
    near.ip("link", "delete", "eth0")
    near.run(emulator().clear)


@pytest.mark.parametrize(
    ("interface", "host", "message"),
    [
        ("wan7", "10.99.0.2", "there is no interface wan7"),
        ("eth0", "10.99.0.1", "rank 1 at 10.99.0.1 is reached over lo, and .* is eth0"),
        ("eth0", "10.7.7.7", "rank 1 at 10.7.7.7 is reached over nothing"),
        ("eth0", "nobody.invalid", "rank 1: 'nobody.invalid' has no address here"),
    ],
)
def test_what_cannot_be_shaped_is_named_and_nothing_is_applied(
    hosts: Hosts, interface: str, host: str, message: str
) -> None:
    near, _ = hosts
    before = near.root_queue()

    with pytest.raises(EmulationFailed, match=message):
        near.run(lambda: emulator(interface).apply(APPLIED, (rank(host),)))
    assert near.root_queue() == before


@pytest.mark.skipif(obstacle is None, reason="this kernel has netem")
def test_a_part_that_the_kernel_lacks_leaves_nothing_behind(hosts: Hosts) -> None:
    near, _ = hosts
    before = near.root_queue()

    with pytest.raises(EmulationFailed, match=r"no netem: install the extra modules package"):
        near.run(
            lambda: emulator().apply(NetworkProfile(one_way_delay_s=0.01), (rank("10.99.0.2"),))
        )
    assert near.root_queue() == before


@needs_netem
def test_a_delay_is_added_to_the_way_to_the_peer_alone(hosts: Hosts) -> None:
    near, _ = hosts
    near.run(lambda: emulator().apply(NetworkProfile(one_way_delay_s=0.05), (rank("10.99.0.2"),)))

    assert 0.05 <= ping_s(near, "10.99.0.2") < 0.075
    assert ping_s(near, "10.99.0.3") < 0.025


def test_the_probe_touches_nothing_of_the_machine() -> None:
    before = socket.if_nameindex()
    find_obstacle()
    assert socket.if_nameindex() == before


def test_loopback_is_never_offered() -> None:
    assert "all agents of a machine share" in str(emulator("lo").probe())


def ping_s(host: Namespace, address: str) -> float:
    """The quickest connection of five, each of which takes one round trip to be refused."""

    def once() -> float:
        with socket.socket() as asking:
            begun = time.perf_counter()
            asking.connect_ex((address, 9))
            return time.perf_counter() - begun

    return min(host.run(once) for _ in range(5))


def tc(host: Namespace, words: str) -> None:
    subprocess.run(["ip", "netns", "exec", host.name, "tc", *words.split()], timeout=60, check=True)
