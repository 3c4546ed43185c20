"""One rank's network from before its profile until after, with peers that a test slows down."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress, StartRank
from tests.factories import job_spec
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.gang_network import GangNetwork

pytestmark = pytest.mark.alone

DELAYED = NetworkProfile(one_way_delay_s=0.01)
SLOW_S = 0.02


class Peer:
    """Answers probes, each after `delays_s` of its connection, and probes back when one ends."""

    def __init__(self, rank: int, own_port: int) -> None:
        self._own_port = own_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = RankAddress(
            rank=rank,
            host="127.0.0.1",
            probe_port=self._listener.getsockname()[1],
            trainer_ports=(9,),
        )
        self.delays_s: list[float] = []  # of the next connections; none after that
        self.leaves_next = False  # after one connection
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more; the last probe back has ended when this returns."""
        self._leave()
        # It may still be probing back, and whom it probes is closed after it.
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), f"peer {self.address.rank} still serves"

    def _leave(self) -> None:
        with contextlib.suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # Of this connection, and not of one before it that is still being ended.
            is_last = self.leaves_next
            delay_s = self.delays_s.pop(0) if self.delays_s else 0.0
            with connection:
                while data := connection.recv(4096):
                    time.sleep(delay_s)
                    connection.sendall(data)
            socket.create_connection(("127.0.0.1", self._own_port), timeout=60).close()
            if is_last:
                self._leave()


@pytest.fixture
def peers_and_network(tmp_path: Path) -> Iterator[tuple[tuple[Peer, Peer], GangNetwork]]:
    spec = job_spec(world_size=3, network=DELAYED, emulator="tcp_proxy")
    command = StartRank(
        token=7, rank=0, agent_count=3, roles=("worker",), spec=spec, prepare_timeout_s=30
    )
    cpus = tuple(os.sched_getaffinity(0))
    site = Site(state_dir=str(tmp_path), interface="lo", cpus=cpus, spared_ports=())
    with ExitStack() as stack:
        network = GangNetwork(command, site)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        network.listen(listener)
        stack.callback(network.close)
        peers = (Peer(1, port), Peer(2, port))
        for peer in peers:
            stack.callback(peer.close)
        addresses = tuple(peer.address for peer in peers)
        network.measure(addresses, timeout_s=30)
        stack.callback(network.undo)
        shaped = network.shape(DELAYED, addresses, timeout_s=30)
        assert shaped is not None
        assert all(rtt.rtt_s >= 0.02 for rtt in shaped.rtts)
        network.undo()
        yield peers, network


def test_each_way_has_to_be_back_once_and_not_all_at_the_same_time(
    peers_and_network: tuple[tuple[Peer, Peer], GangNetwork],
) -> None:
    (one, two), network = peers_and_network
    one.delays_s = [SLOW_S, 0.0] * 20
    two.delays_s = [0.0, SLOW_S] * 20

    back = network.measure_back()

    assert sorted(rtt.rank for rtt in back) == [1, 2]
    assert max(rtt.rtt_s for rtt in back) < SLOW_S
    assert len(one.delays_s) == len(two.delays_s) > 30, "it was found out at the second look"


def test_a_way_that_nobody_answers_any_more_proves_nothing(
    peers_and_network: tuple[tuple[Peer, Peer], GangNetwork],
) -> None:
    (_, two), network = peers_and_network
    two.delays_s = [SLOW_S]
    two.leaves_next = True

    [back] = network.measure_back()
    assert back.rank == 1, "the other was seen once, and not yet back"
