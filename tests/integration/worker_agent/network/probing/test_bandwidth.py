"""The ranks of a gang try how much the ways between them carry: real sockets, real proxies."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tcp_proxy import TcpProxy
from worker_agent.network.probing.bandwidth_tests import LinkResults, LinkTest, measure_bandwidths
from worker_agent.network.probing.probe import EchoServer, measure_peers
from worker_agent.network.probing.transfer import (
    GREETING_BYTES,
    IncomingStreams,
    greeting,
    take_transfers,
)

pytestmark = pytest.mark.alone

TOKEN = 7
RATE = 2.5e6
LIMITED = NetworkProfile(bandwidth_bytes_per_s=RATE)


class Station:
    """One rank's end: its port, its echo and whoever comes to it."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.streams = IncomingStreams(token=TOKEN, peers=frozenset(range(count)) - {rank})
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = RankAddress(
            rank=rank, host="127.0.0.1", probe_port=listener.getsockname()[1], trainer_ports=()
        )
        self.echo = EchoServer(listener, self.streams)

    def close(self) -> None:
        self.streams.close()
        self.echo.close()


class Stations:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.all: list[Station] = []

    def open(self, count: int) -> list[Station]:
        self.all = [Station(rank, count) for rank in range(count)]
        for station in self.all:
            self._stack.callback(station.close)
        return self.all

    def reached(
        self, station: Station, *, through: NetworkProfile | None
    ) -> tuple[RankAddress, ...]:
        """The others, as they are, or through a proxy of the station's own."""
        peers = tuple(other.address for other in self.all if other is not station)
        if through is None:
            return peers
        folder = self._folder / str(station.rank)
        folder.mkdir()
        cpus = tuple(os.sched_getaffinity(0))
        site = Site(state_dir=str(folder), interface="lo", cpus=cpus, spared_ports=())
        proxy = TcpProxy(site)
        self._stack.callback(proxy.clear)
        return proxy.apply(through, peers)


@pytest.fixture
def stations(tmp_path: Path) -> Iterator[Stations]:
    with ExitStack() as stack:
        yield Stations(tmp_path, stack)


def link_test(station: Station, reached: tuple[RankAddress, ...], **changes: object) -> LinkTest:
    fields: dict[str, object] = {
        "token": TOKEN,
        "own_rank": station.rank,
        "profile": LIMITED,
        "reached": reached,
        "rtts_s": {peer.rank: 0.001 for peer in reached},
        "is_settled": True,
        **changes,
    }
    return LinkTest(**fields)  # type: ignore[arg-type] # a test's own fields


def measure(link_tests: list[LinkTest], stations: Stations) -> list[LinkResults]:
    """Let every rank measure at once."""
    deadline = time.monotonic() + 60
    with ThreadPoolExecutor(len(link_tests)) as pool:
        running = [
            pool.submit(measure_bandwidths, one, station.streams, deadline=deadline)
            for one, station in zip(link_tests, stations.all, strict=True)
        ]
        return [future.result() for future in running]


def test_each_of_three_ranks_learns_what_its_proxies_let_through(stations: Stations) -> None:
    link_tests = [
        link_test(station, stations.reached(station, through=LIMITED))
        for station in stations.open(3)
    ]
    found = measure(link_tests, stations)

    assert [[one.rank for one in row.bandwidths] for row in found] == [[1, 2], [0, 2], [0, 1]]
    for one in (one for row in found for one in row.bandwidths):
        # A busy machine may be late; more than the limit may never come through.
        assert 0.8 * RATE < one.bytes_per_s < 1.1 * RATE
        assert one.byte_count > 0.4 * RATE


def test_a_link_without_a_limit_is_seen_to_have_none(stations: Stations) -> None:
    link_tests = [
        link_test(station, stations.reached(station, through=None)) for station in stations.open(2)
    ]
    for found in measure(link_tests, stations):
        [one] = found.bandwidths
        assert one.bytes_per_s > 2 * RATE


def test_a_link_far_too_narrow_is_given_up_and_its_bandwidth_is_known(stations: Stations) -> None:
    narrow = NetworkProfile(bandwidth_bytes_per_s=RATE / 10)
    one, two = stations.open(2)
    link_tests = [
        link_test(one, stations.reached(one, through=narrow)),
        link_test(two, stations.reached(two, through=None)),
    ]
    begun = time.monotonic()
    found, _ = measure(link_tests, stations)
    [slow] = found.bandwidths

    assert 0.05 * RATE < slow.bytes_per_s < 0.15 * RATE
    # All of it would take more than 7 s.
    assert time.monotonic() - begun < 6
    assert found.loaded_rtts == ()
    assert found.loaded_rtt_unknown == "the bandwidth was not as asked"


def test_nobody_sends_as_long_as_one_ranks_round_trips_are_wrong(stations: Stations) -> None:
    link_tests = [
        link_test(station, stations.reached(station, through=None), is_settled=station.rank != 1)
        for station in stations.open(3)
    ]
    unknown = LinkResults(loaded_rtt_unknown="not all round trips were as asked")
    assert measure(link_tests, stations) == [unknown] * 3


def test_beside_a_stream_a_round_trip_waits_behind_what_the_stream_has_queued(
    stations: Stations,
) -> None:
    link_tests = [
        link_test(station, stations.reached(station, through=LIMITED))
        for station in stations.open(2)
    ]
    for own, found in enumerate(measure(link_tests, stations)):
        assert found.loaded_rtt_unknown is None
        [loaded] = found.loaded_rtts
        assert loaded.rank == 1 - own
        assert loaded.probe_count >= 3
        # A proxy lets 10 ms of its bandwidth queue; idle the way takes less than a millisecond.
        assert loaded.rtt_s > 0.005


def test_a_way_that_a_stream_fills_too_slowly_has_a_reason_instead(stations: Stations) -> None:
    slow = NetworkProfile(bandwidth_bytes_per_s=9_000)
    link_tests = [
        link_test(station, stations.reached(station, through=slow), profile=slow)
        for station in stations.open(2)
    ]
    for found in measure(link_tests, stations):
        assert found.loaded_rtts == ()
        assert found.loaded_rtt_unknown == "a stream that fills this way would take more than 10 s"


def test_a_peer_that_does_not_come_is_named(stations: Stations) -> None:
    one, two = stations.open(2)
    reached = stations.reached(one, through=None)
    with pytest.raises(
        EmulationFailed,
        match=rf"bandwidth to rank 1 at 127.0.0.1:{two.address.probe_port} was not measured: it did"
        " not connect to send",
    ):
        measure_bandwidths(link_test(one, reached), one.streams, deadline=time.monotonic() + 0.5)


def test_a_peer_that_goes_in_the_middle_is_named_at_once(stations: Stations) -> None:
    one, two = stations.open(2)
    reached = stations.reached(one, through=None)
    with ThreadPoolExecutor(1) as pool:
        deadline = time.monotonic() + 60
        measuring = pool.submit(
            measure_bandwidths, link_test(one, reached), one.streams, deadline=deadline
        )
        with visiting(one, rank=1):
            # Rank 0 has come, and waits for its turn.
            two.streams.take(0, deadline=deadline).connection.close()
            with pytest.raises(EmulationFailed, match=r"rank 1 at .*: the connection was closed"):
                measuring.result(timeout=30)


def test_who_is_told_to_let_go_does_not_wait_for_the_deadline(stations: Stations) -> None:
    one, _ = stations.open(2)
    reached = stations.reached(one, through=None)
    with ThreadPoolExecutor(1) as pool:
        measuring = pool.submit(
            measure_bandwidths, link_test(one, reached), one.streams, deadline=time.monotonic() + 60
        )
        one.streams.close()
        with pytest.raises(EmulationFailed):
            measuring.result(timeout=30)


@contextlib.contextmanager
def visiting(station: Station, *, rank: int, token: int = TOKEN) -> Iterator[socket.socket]:
    place = (station.address.host, station.address.probe_port)
    with socket.create_connection(place, timeout=60) as connection:
        connection.sendall(greeting(token=token, rank=rank, is_settled=True))
        yield connection


@pytest.mark.parametrize(
    ("rank", "token"), [(0, TOKEN), (2, TOKEN), (1, TOKEN + 1)], ids=["itself", "nobody", "late"]
)
def test_a_stranger_is_sent_away(stations: Stations, rank: int, token: int) -> None:
    one, _ = stations.open(2)
    with visiting(one, rank=rank, token=token) as connection:
        assert connection.recv(1) == b""


def test_a_second_visit_of_one_rank_is_sent_away(stations: Stations) -> None:
    one, _ = stations.open(2)
    with visiting(one, rank=1), visiting(one, rank=1) as second:
        assert second.recv(1) == b""
        stream = one.streams.take(1, deadline=time.monotonic() + 5)
        stream.connection.close()


def test_half_a_greeting_keeps_nobody_from_being_answered(stations: Stations) -> None:
    one, _ = stations.open(2)
    place = (one.address.host, one.address.probe_port)
    message = greeting(token=TOKEN, rank=1, is_settled=True)
    with socket.create_connection(place, timeout=60) as connection:
        connection.sendall(message[:5])
        [rtt] = measure_peers((one.address,), own_rank=1, timeout_s=10)
        assert rtt.probe_count == 20
        connection.sendall(message[5:])
        stream = one.streams.take(1, deadline=time.monotonic() + 5)
        stream.connection.close()


def test_more_than_a_greeting_is_no_greeting(stations: Stations) -> None:
    one, _ = stations.open(2)
    with visiting(one, rank=1) as connection:
        stream = one.streams.take(1, deadline=time.monotonic() + 5)
        stream.connection.close()
        assert connection.recv(1) == b""
    place = (one.address.host, one.address.probe_port)
    with socket.create_connection(place, timeout=60) as connection:
        connection.sendall(b"v" * (GREETING_BYTES + 1))
        assert connection.recv(1) == b""


def test_who_orders_without_end_is_listened_to_until_the_deadline() -> None:
    taking, sending = socket.socketpair()
    endless = struct.pack("!QQQd", 2**60, 1, 2**40, 1e9)

    def flood() -> None:
        with contextlib.suppress(OSError):
            sending.sendall(endless)
            while True:
                sending.sendall(bytes(4096))

    flooding = threading.Thread(target=flood)
    with taking, sending:
        flooding.start()
        begun = time.monotonic()
        take_transfers(taking, deadline=begun + 0.3)
        assert time.monotonic() - begun < 10
        taking.close()
        flooding.join(timeout=60)
        assert not flooding.is_alive()
