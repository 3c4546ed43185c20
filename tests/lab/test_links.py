"""What a link does to packets, measured from outside: no code of the farm times anything here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec
from farm.lab.lab import Lab
from farm.lab.wirefilter import LINKS, MAX_BANDWIDTH_BYTES_PER_S, WireDirection, Wirefilter
from tests.lab.stations import Stations

# Of Ethernet's 1514 bytes a segment carries 1448.
PAYLOAD_RATIO = 1448 / 1514


@pytest.mark.parametrize("delay_s", [0.005, 0.02, 0.04])
def test_a_delay_is_paid_once_each_way(stations: Stations, delay_s: float) -> None:
    one, two = stations.lab.hosts
    base_s = stations.rtt_s(one, two)
    stations.lab.set_link(delay_s=delay_s)

    assert stations.rtt_s(one, two) == pytest.approx(2 * delay_s + base_s, rel=0.1, abs=0.002)
    assert stations.rtt_s(two, one) == pytest.approx(2 * delay_s + base_s, rel=0.1, abs=0.002)

    stations.lab.set_link()
    assert stations.rtt_s(one, two) < base_s + 0.004


def test_a_delay_of_one_host_is_paid_by_what_reaches_it(stations: Stations) -> None:
    one, two = stations.lab.hosts
    base_s = stations.rtt_s(one, two)
    stations.lab.set_link(two, delay_s=0.03)

    assert stations.rtt_s(one, two) == pytest.approx(0.03 + base_s, rel=0.1)


@pytest.mark.parametrize("mbit_per_s", [5, 40])
def test_a_bandwidth_is_what_arrives(stations: Stations, mbit_per_s: float) -> None:
    one, two = stations.lab.hosts
    wire_bytes_per_s = mbit_per_s * 125_000
    stations.lab.set_link(two, bandwidth_bytes_per_s=wire_bytes_per_s)

    transfer = stations.send_undisturbed(one, two, seconds=2.0)

    assert transfer.bytes_per_s == pytest.approx(wire_bytes_per_s * PAYLOAD_RATIO, rel=0.1)


def test_a_host_has_100_mbit_per_s_and_hardly_a_segment_is_lost(stations: Stations) -> None:
    one, two = stations.lab.hosts
    stations.lab.set_link(delay_s=0.005)

    transfer = stations.send_undisturbed(one, two, seconds=2.0)

    expected = MAX_BANDWIDTH_BYTES_PER_S * PAYLOAD_RATIO
    assert transfer.bytes_per_s == pytest.approx(expected, rel=0.1)
    assert transfer.resent_count < 200  # of some 17,000


def test_a_loss_makes_tcp_send_that_share_again(stations: Stations) -> None:
    one, two = stations.lab.hosts
    stations.lab.set_link(two, loss_ratio=0.02, bandwidth_bytes_per_s=1_250_000)

    sent_count = resent_count = 0.0
    while sent_count < 5_000:
        transfer = stations.send(one, two, seconds=3.0)
        sent_count += transfer.bytes_per_s * 3.0 / 1448
        resent_count += transfer.resent_count

    # Chance has a spread of its own: a hundred losses, more or less a few dozen.
    assert 0.01 < resent_count / sent_count < 0.04


def test_a_cut_host_is_silent_until_it_is_healed_and_its_link_is_as_before(
    stations: Stations,
) -> None:
    one, two = stations.lab.hosts
    stations.lab.set_link(delay_s=0.01)
    stations.lab.cut(one)

    assert not stations.reaches(one, two, within_s=1.0)
    assert not stations.reaches(two, one, within_s=1.0)
    state = stations.lab.run(one, ["ip", "-br", "link", "show", "dev", one.interface]).stdout
    assert "LOWER_UP" in state, "a cut is no pulled plug"

    stations.lab.heal(one)
    stations.lab.heal(one)
    assert stations.rtt_s(one, two) == pytest.approx(0.02, rel=0.15)


def test_the_brokers_network_is_neither_delayed_nor_cut(stations: Stations) -> None:
    one, _ = stations.lab.hosts
    stations.lab.set_link(delay_s=0.2)
    stations.lab.cut(one)

    done = stations.lab.run(one, ["ip", "route", "get", stations.lab.server_address])
    assert one.broker_interface in done.stdout
    assert stations.lab.run(one, _ping(stations.lab.server_address)).stdout.strip() == "refused"


def _ping(address: str) -> list[str]:
    """A connection to a port that nobody has: the answer comes at once, if one comes at all."""
    program = (
        "import socket\n"
        f"try: socket.create_connection(({address!r}, 9), timeout=1)\n"
        "except ConnectionRefusedError: print('refused')\n"
    )
    return ["python3", "-c", program]


def test_a_link_says_what_was_set(stations: Stations) -> None:
    _, two = stations.lab.hosts
    stations.lab.set_link(two, delay_s=0.0125, loss_ratio=0.001, bandwidth_bytes_per_s=625_000)

    assert stations.lab.link(two) == NetworkProfile(
        one_way_delay_s=0.0125, packet_loss_ratio=0.001, bandwidth_bytes_per_s=625_000
    )


def test_what_a_host_sends_is_set_apart_from_what_reaches_it(stations: Stations) -> None:
    _, two = stations.lab.hosts
    wire = Wirefilter.of_interface(two.interface)
    wire.apply(NetworkProfile(one_way_delay_s=0.01), direction=WireDirection.FROM_HOST)
    try:
        stations.lab.set_link(two, delay_s=0.02)
        stations.lab.set_link(two)
        assert wire.read(WireDirection.FROM_HOST).one_way_delay_s == 0.01
    finally:
        wire.apply(NetworkProfile(), direction=WireDirection.FROM_HOST)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"delay_s": -0.001}, "one_way_delay_s"),
        ({"delay_s": float("nan")}, "one_way_delay_s"),
        ({"delay_s": 3600.0}, "one_way_delay_s"),
        ({"loss_ratio": 1.0}, "packet_loss_ratio"),
        ({"bandwidth_bytes_per_s": 0.0}, "bandwidth_bytes_per_s"),
        ({"bandwidth_bytes_per_s": 1e9}, "bandwidth_bytes_per_s"),
    ],
)
def test_what_no_link_can_have_is_refused_by_name_and_changes_nothing(
    stations: Stations, values: dict[str, float], field: str
) -> None:
    stations.lab.set_link(delay_s=0.001)

    with pytest.raises(InvalidSpec, match=field):
        stations.lab.set_link(None, **values)

    assert [stations.lab.link(host).one_way_delay_s for host in stations.lab.hosts] == [0.001] * 2


def test_a_wire_that_is_not_there_is_named() -> None:
    with pytest.raises(EmulationFailed, match=f"link nowhere does not answer at {LINKS}/nowhere"):
        Wirefilter.of_interface("nowhere").cut()


def test_what_two_hosts_send_to_one_shares_its_link() -> None:
    with Lab(hosts=3) as lab, ThreadPoolExecutor() as pool:
        stations = Stations(lab)
        lab.set_link(delay_s=0.005)
        one, *others = lab.hosts
        sent = list(pool.map(lambda host: stations.send(host, one, seconds=2.0), others))

        total = sum(transfer.bytes_per_s for transfer in sent)
        assert total < 1.2 * MAX_BANDWIDTH_BYTES_PER_S
