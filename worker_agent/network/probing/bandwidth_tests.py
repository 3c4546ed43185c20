"""Measures the bandwidth between machines that train together.

Each rank sends over connections of its own, opened in the same way as those of its trainers. A rank
opens them once it has timed its round trips. No rank sends before all ranks have opened theirs.
"""

from __future__ import annotations

import dataclasses
import socket
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.gang.network_check import matches_bandwidth
from farm.gang.transfers import load_settled_s, partners, plan_load, plan_transfer, turn_s
from farm.messages.commands import RankAddress
from farm.messages.reports import PeerBandwidth, PeerRtt
from worker_agent.network.probing.probe import LoadedEcho
from worker_agent.network.probing.transfer import (
    IncomingStreams,
    end_transfers,
    greeting,
    left_s,
    receive_exactly,
    send_transfer,
    take_transfers,
)

_TRIES = 2
# The median of fewer would be that of one moment.
_LEAST_ECHOES = 3
_YOUR_TURN = b"!"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTest:
    """What one rank needs to test its links. `reached`: its peers, by the addresses it uses.

    `rtts_s`: by peer, through the profile; `is_settled`: whether they are as asked.
    """

    token: int
    own_rank: int
    profile: NetworkProfile
    reached: Sequence[RankAddress]
    rtts_s: Mapping[int, float]
    is_settled: bool

    @property
    def agent_count(self) -> int:
        return len(self.reached) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkResults:
    """Bandwidth of the links, by rank, and the round-trip time of one of them under load."""

    bandwidths: tuple[PeerBandwidth, ...] = ()
    loaded_rtts: tuple[PeerRtt, ...] = ()
    loaded_rtt_unknown: str | None = None


def measure_bandwidths(
    link_test: LinkTest, streams: IncomingStreams, *, deadline: float
) -> LinkResults:
    """Measure the bandwidth to each peer, and let each peer measure it to this rank.

    All links have the same profile, so the round trip under load is measured on the first alone.
    Nothing is measured where a rank's round trips are wrong: its network is not what it should be.

    Raises:
        EmulationFailed: a peer does not come, or does not say what has arrived.
    """
    peers = {peer.rank: peer for peer in link_test.reached}
    ways: dict[int, socket.socket] = {}
    guests: dict[int, socket.socket] = {}
    is_settled = link_test.is_settled
    with ExitStack() as stack:
        for rank, peer in peers.items():
            with _naming(peer):
                ways[rank] = stack.enter_context(_connect(link_test, peer, deadline))
        for rank, peer in peers.items():
            with _naming(peer):
                stream = streams.take(rank, deadline=deadline)
            guests[rank] = stack.enter_context(stream.connection)
            is_settled = is_settled and stream.is_settled
        if not is_settled:
            return LinkResults(loaded_rtt_unknown="not all round trips were as asked")
        found = []
        loaded = LinkResults()
        order = partners(link_test.own_rank, link_test.agent_count)
        for count, rank in enumerate(order, start=1):
            with _naming(peers[rank]):
                if rank < link_test.own_rank:
                    _host(guests[rank], deadline)
                later = 2 * (len(order) - count) + 1
                sent = _send(link_test, rank, ways[rank], deadline=deadline, later=later)
                found.append(sent)
                if count == 1:
                    loaded = _load(
                        link_test, peers[rank], ways[rank], deadline=deadline, later=later
                    )
                if ways[rank].fileno() >= 0:
                    end_transfers(ways[rank], deadline=deadline)
                if rank > link_test.own_rank:
                    _host(guests[rank], deadline)
    bandwidths = tuple(sorted(found, key=lambda one: one.rank))
    return dataclasses.replace(loaded, bandwidths=bandwidths)


def _connect(link_test: LinkTest, peer: RankAddress, deadline: float) -> socket.socket:
    connection = socket.create_connection((peer.host, peer.probe_port), timeout=left_s(deadline))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message = greeting(
        token=link_test.token, rank=link_test.own_rank, is_settled=link_test.is_settled
    )
    connection.sendall(message)
    return connection


def _host(connection: socket.socket, deadline: float) -> None:
    """Let a peer send, now that nothing else comes here or leaves."""
    connection.settimeout(left_s(deadline))
    connection.sendall(_YOUR_TURN)
    take_transfers(connection, deadline=deadline)


def _send(
    link_test: LinkTest, rank: int, connection: socket.socket, *, deadline: float, later: int
) -> PeerBandwidth:
    """Send until what arrives is as asked; again only while there is time for `later` transfers."""
    receive_exactly(connection, len(_YOUR_TURN), deadline=deadline)
    profile, rtt_s = link_test.profile, link_test.rtts_s[rank]
    assert profile.bandwidth_bytes_per_s is not None
    plan = plan_transfer(profile.bandwidth_bytes_per_s, rtt_s=rtt_s)
    for count in range(1, _TRIES + 1):
        arrived = send_transfer(connection, plan, deadline=deadline)
        if not arrived.is_whole:
            break
        is_late = time.monotonic() + (later + 1) * turn_s(profile, rtt_s=rtt_s) > deadline
        is_right = matches_bandwidth(profile, rtt_s=rtt_s, bytes_per_s=arrived.bytes_per_s)
        if is_right or is_late or count == _TRIES:
            break
    return PeerBandwidth(rank=rank, bytes_per_s=arrived.bytes_per_s, byte_count=arrived.timed_bytes)


def _load(
    link_test: LinkTest,
    peer: RankAddress,
    connection: socket.socket,
    *,
    deadline: float,
    later: int,
) -> LinkResults:
    """Time the round trip to a peer while one stream fills the way there as TCP alone does."""
    profile, rtt_s = link_test.profile, link_test.rtts_s[peer.rank]
    assert profile.bandwidth_bytes_per_s is not None
    plan = plan_load(profile.bandwidth_bytes_per_s, rtt_s=rtt_s)
    if plan is None:
        return LinkResults(
            loaded_rtt_unknown="a stream that fills this way would take more than 10 s"
        )
    if connection.fileno() < 0:
        return LinkResults(loaded_rtt_unknown="the bandwidth was not as asked")
    needed_s = plan.limit_s + later * turn_s(profile, rtt_s=rtt_s)
    if time.monotonic() + needed_s > deadline:
        return LinkResults(loaded_rtt_unknown="the barrier had no time left for it")
    try:
        echo = LoadedEcho(peer, deadline=deadline)
    except OSError as error:
        return LinkResults(loaded_rtt_unknown=f"no echo of rank {peer.rank}: {error}")
    echo.start(settled_s=load_settled_s(rtt_s=rtt_s))
    try:
        send_transfer(connection, plan, deadline=deadline)
    finally:
        times_s, failure = _stopped(echo)
    if failure is not None:
        return LinkResults(loaded_rtt_unknown=f"no echo of rank {peer.rank}: {failure}")
    if len(times_s) < _LEAST_ECHOES:
        reason = f"expected at least {_LEAST_ECHOES} echoes beside the stream, got {len(times_s)}"
        return LinkResults(loaded_rtt_unknown=reason)
    rtt = PeerRtt(rank=peer.rank, rtt_s=statistics.median(times_s), probe_count=len(times_s))
    return LinkResults(loaded_rtts=(rtt,))


def _stopped(echo: LoadedEcho) -> tuple[tuple[float, ...], OSError | None]:
    try:
        return echo.stop(), None
    except OSError as error:
        return (), error


@contextmanager
def _naming(peer: RankAddress) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f"rank {peer.rank} at {peer.host}:{peer.probe_port}"
        reason = str(error) or type(error).__name__
        raise EmulationFailed(f"bandwidth to {place} was not measured: {reason}") from error
