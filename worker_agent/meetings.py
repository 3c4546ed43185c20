"""The meetings at which the ranks of a gang try how much the ways between them carry.

Each rank sends over connections of its own, opened as those of its trainers are, and says by
opening them that it has timed its round trips: as long as one of them has not, nobody sends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from farm.core.commands import RankAddress
from farm.core.network_check import is_bandwidth_as_asked
from farm.core.reports import PeerBandwidth
from farm.core.spec import NetworkProfile
from farm.core.transfers import partners, plan_transfer, turn_s
from farm.errors import EmulationFailed
from worker_agent.transfer import (
    end_transfers,
    left_s,
    receive_exactly,
    send_transfer,
    take_transfers,
)
from worker_agent.visits import Visits, greeting

_TRIES = 2
_YOUR_TURN = b"!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one rank needs to know to try its ways. `reached`: its peers, as the ways lead to them.

    `rtts_s`: by peer, through the profile; `is_settled`: whether they are as asked.
    """

    token: int
    own_rank: int
    profile: NetworkProfile
    reached: Sequence[RankAddress]
    rtts_s: Mapping[int, float]
    is_settled: bool

    @property
    def rank_count(self) -> int:
        return len(self.reached) + 1


def measure_bandwidths(
    trial: Trial, visits: Visits, *, deadline: float
) -> tuple[PeerBandwidth, ...]:
    """Measure what the way to each peer carries, and let each peer do so, by rank.

    Nothing is measured where a rank's round trips are wrong: its network is not what it should be.

    Raises:
        EmulationFailed: a peer does not come, or does not say what has arrived.
    """
    peers = {peer.rank: peer for peer in trial.reached}
    ways: dict[int, socket.socket] = {}
    guests: dict[int, socket.socket] = {}
    is_settled = trial.is_settled
    with ExitStack() as stack:
        for rank, peer in peers.items():
            with _naming(peer):
                ways[rank] = stack.enter_context(_visit(trial, peer, deadline))
        for rank, peer in peers.items():
            with _naming(peer):
                visit = visits.take(rank, deadline=deadline)
            guests[rank] = stack.enter_context(visit.connection)
            is_settled = is_settled and visit.is_settled
        if not is_settled:
            return ()
        found = []
        meeting = partners(trial.own_rank, trial.rank_count)
        for count, rank in enumerate(meeting, start=1):
            with _naming(peers[rank]):
                if rank < trial.own_rank:
                    _host(guests[rank], deadline)
                later = 2 * (len(meeting) - count) + 1
                found.append(_send(trial, rank, ways[rank], deadline=deadline, later=later))
                if rank > trial.own_rank:
                    _host(guests[rank], deadline)
    return tuple(sorted(found, key=lambda one: one.rank))


def _visit(trial: Trial, peer: RankAddress, deadline: float) -> socket.socket:
    connection = socket.create_connection((peer.host, peer.probe_port), timeout=left_s(deadline))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    said = greeting(token=trial.token, rank=trial.own_rank, is_settled=trial.is_settled)
    connection.sendall(said)
    return connection


def _host(connection: socket.socket, deadline: float) -> None:
    """Let a peer send, now that nothing else comes here or leaves."""
    connection.settimeout(left_s(deadline))
    connection.sendall(_YOUR_TURN)
    take_transfers(connection, deadline=deadline)


def _send(
    trial: Trial, rank: int, connection: socket.socket, *, deadline: float, later: int
) -> PeerBandwidth:
    """Send until what arrives is as asked; again only while there is time for `later` transfers."""
    receive_exactly(connection, len(_YOUR_TURN), deadline=deadline)
    profile, rtt_s = trial.profile, trial.rtts_s[rank]
    assert profile.bandwidth_bytes_per_s is not None
    plan = plan_transfer(profile.bandwidth_bytes_per_s, rtt_s=rtt_s)
    for count in range(1, _TRIES + 1):
        arrived = send_transfer(connection, plan, deadline=deadline)
        if not arrived.is_whole:
            break
        is_late = time.monotonic() + (later + 1) * turn_s(profile, rtt_s=rtt_s) > deadline
        is_right = is_bandwidth_as_asked(profile, rtt_s=rtt_s, bytes_per_s=arrived.bytes_per_s)
        if is_right or is_late or count == _TRIES:
            end_transfers(connection, deadline=deadline)
            break
    return PeerBandwidth(rank=rank, bytes_per_s=arrived.bytes_per_s, byte_count=arrived.timed_bytes)


@contextmanager
def _naming(peer: RankAddress) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f"rank {peer.rank} at {peer.host}:{peer.probe_port}"
        reason = str(error) or type(error).__name__
        raise EmulationFailed(f"bandwidth to {place} was not measured: {reason}") from error
