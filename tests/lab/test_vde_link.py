"""The emulator of a lab's links, run as an agent would: by a process on the host itself."""

from __future__ import annotations

import dataclasses
import sys
import textwrap

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.lab.hosts import Host
from farm.lab.wirefilter import WireDirection, Wirefilter
from tests.lab.stations import Stations
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.vde_link import VdeLink

NO_LINK = Site(state_dir="/nowhere", interface="lo", cpus=(0,), spared_ports=())

ON_HOST = """
    import sys
    from farm.configuration.spec import NetworkProfile
    from worker_agent.network.emulators.contracts import Site
    from worker_agent.network.emulators.vde_link import VdeLink
    site = Site(state_dir="/nowhere", interface=sys.argv[1], cpus=(0,), spared_ports=())
    emulator = VdeLink(site)
    print(emulator.probe())
"""


def on_host(stations: Stations, host: Host, program: str) -> str:
    """Run lines beside an `emulator`; return what they printed."""
    source = textwrap.dedent(ON_HOST) + program
    done = stations.lab.run(host, [sys.executable, "-c", source, host.interface])
    assert done.returncode == 0, done.stderr
    found, _, printed = done.stdout.partition("\n")
    assert found == "None", "an agent on a host may claim the capability"
    return printed.strip()


def apply(stations: Stations, host: Host, profile: str) -> str:
    return on_host(
        stations,
        host,
        f"emulator.apply(NetworkProfile({profile}), ())",
    )


def clear(stations: Stations, host: Host) -> str:
    return on_host(stations, host, "emulator.clear()")


def test_agents_on_both_hosts_make_a_round_trip_of_twice_the_delay(stations: Stations) -> None:
    one, two = stations.lab.hosts
    base_s = stations.rtt_s(one, two)
    for host in (one, two):
        apply(stations, host, "one_way_delay_s=0.02")

    assert stations.rtt_s(one, two) == pytest.approx(0.04 + base_s, rel=0.1)

    for host in (one, two):
        clear(stations, host)
        clear(stations, host)
    assert stations.rtt_s(one, two) < base_s + 0.004


def test_what_is_applied_next_replaces_what_was(stations: Stations) -> None:
    one, two = stations.lab.hosts
    base_s = stations.rtt_s(one, two)
    apply(stations, one, "one_way_delay_s=0.05, packet_loss_ratio=0.5")
    apply(stations, one, "one_way_delay_s=0.01")
    try:
        assert stations.rtt_s(one, two) == pytest.approx(0.01 + base_s, abs=0.002)
    finally:
        clear(stations, one)


def test_a_bandwidth_is_of_what_the_host_sends(stations: Stations) -> None:
    one, two = stations.lab.hosts
    apply(stations, one, "bandwidth_bytes_per_s=1_250_000")
    try:
        limited = stations.send_undisturbed(one, two, seconds=2)
        assert limited.bytes_per_s == pytest.approx(1_250_000, rel=0.1)
        assert stations.send(two, one, seconds=1).bytes_per_s > 5_000_000
    finally:
        clear(stations, one)


def test_an_agent_clears_neither_a_cut_nor_what_the_lab_has_set(stations: Stations) -> None:
    one, two = stations.lab.hosts
    stations.lab.set_link(delay_s=0.01)
    stations.lab.cut(one)
    apply(stations, one, "one_way_delay_s=0.02")
    clear(stations, one)

    assert not stations.reaches(one, two, within_s=0.5)
    stations.lab.heal(one)
    # The agent's delay would add 20 ms; a busy machine adds some.
    assert 0.018 < stations.rtt_s(one, two) < 0.035


def test_a_link_that_was_told_otherwise_meanwhile_is_noticed(stations: Stations) -> None:
    one, _ = stations.lab.hosts
    program = """
from farm.errors import EmulationFailed
from farm.lab.wirefilter import WireDirection, Wirefilter
emulator.check()
emulator.apply(NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.01), ())
emulator.check()
wire = Wirefilter.of_interface(site.interface)
wire.apply(NetworkProfile(one_way_delay_s=0.02), direction=WireDirection.FROM_HOST)
try:
    emulator.check()
except EmulationFailed as error:
    print(error)
emulator.clear()
emulator.check()
"""
    output = on_host(stations, one, program)
    assert output == f"link {one.interface}: loss should be 1 and is 0"


def test_an_agent_outside_of_a_lab_cannot_claim_it(stations: Stations) -> None:
    del stations  # there is a lab, and this process is not on one of its hosts
    assert VdeLink(NO_LINK).probe() == "lo is not a link of a lab (see farm lab)"


def test_the_link_of_another_lab_is_neither_claimed_nor_cleared(stations: Stations) -> None:
    # A killed lab's notes name links whose names a later lab has taken.
    one, _ = stations.lab.hosts
    apply(stations, one, "one_way_delay_s=0.02")
    try:
        site = dataclasses.replace(NO_LINK, interface=one.interface)
        stranger = VdeLink(site)
        assert stranger.probe() == f"{one.interface} is not a link of a lab (see farm lab)"
        stranger.clear()
        wire = Wirefilter.of_interface(one.interface)
        assert wire.read(WireDirection.FROM_HOST).one_way_delay_s == 0.02
    finally:
        clear(stations, one)


def test_an_agent_that_is_not_root_may_run_where_labs_have_been(stations: Stations) -> None:
    # Their folder is root's alone.
    source = (
        "import os\n"
        "from worker_agent.network.emulators.contracts import Site\n"
        "from worker_agent.network.emulators.vde_link import VdeLink\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "site = Site(state_dir='/nowhere', interface='lo', cpus=(0,), spared_ports=())\n"
        "print(VdeLink(site).probe())\n"
    )
    one = stations.lab.hosts[0]
    done = stations.lab.run(one, [sys.executable, "-c", source])
    assert done.stdout == "lo is not a link of a lab (see farm lab)\n", done.stderr


def test_an_interface_that_is_no_link_is_named_and_has_nothing_to_clear() -> None:
    emulator = VdeLink(NO_LINK)
    with pytest.raises(EmulationFailed, match="interface lo is not a link of a lab"):
        emulator.apply(NetworkProfile(one_way_delay_s=0.01), ())
    emulator.clear()


@pytest.mark.parametrize(
    ("profile", "is_served"),
    [
        (NetworkProfile(one_way_delay_s=0.02, packet_loss_ratio=0.01), True),
        (NetworkProfile(bandwidth_bytes_per_s=12_500_000), True),
        (NetworkProfile(bandwidth_bytes_per_s=12_500_001), False),
        (NetworkProfile(one_way_delay_s=0.02, jitter_s=0.001), False),
    ],
)
def test_it_serves_what_a_wire_can_do(profile: NetworkProfile, is_served: bool) -> None:
    assert VdeLink(NO_LINK).serves(profile) is is_served
