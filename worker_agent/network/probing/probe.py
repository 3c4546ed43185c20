"""Measures round-trip times between ranks: each offers an echo, and a client times it.

Peers open their bulk streams to the same port, see `transfer`.
"""

from __future__ import annotations

import logging
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from farm.errors import EmulationFailed
from farm.gang.network_check import PARALLEL_PEERS, PROBE_COUNT
from farm.messages.commands import RankAddress
from farm.messages.reports import PeerRtt
from worker_agent.network.probing.transfer import (
    FIRST_BYTE,
    GREETING_BYTES,
    IncomingStreams,
    left_s,
    receive_exactly,
)

logger = logging.getLogger(__name__)

_PAYLOAD = b"benchfarm-probe!"


class EchoServer:
    """Echoes what connects to `listener`, which it owns, until `close`.

    A connection that begins as a stream is handed over to `streams`, if given. Beyond
    `most_connections` further ones are refused: any host may connect, and the agent's own open
    files are limited.
    """

    def __init__(
        self,
        listener: socket.socket,
        streams: IncomingStreams | None = None,
        *,
        most_connections: int = 128,
    ) -> None:
        self._listener = listener
        self._streams = streams
        self._most_connections = most_connections
        self._listener.listen(128)
        self._listener.setblocking(False)
        # Closing the one end makes the other readable, so that `close` need not wait for a look.
        self._closing, self._closed = socket.socketpair()
        self._served = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def await_probes(self, count: int, *, timeout_s: float) -> None:
        """Wait until `count` more connections have come and gone, or the time is over."""
        deadline = time.monotonic() + timeout_s
        for _ in range(count):
            if not self._served.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return

    def forget_probes(self) -> None:
        """Count from now on."""
        while self._served.acquire(blocking=False):
            pass

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._closing.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._closed, selectors.EVENT_READ)
            is_closing = False
            while not is_closing:
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif key.fileobj is self._closed:
                        is_closing = True
                    else:
                        self._serve(selector, key)
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it went away between its arrival and now
        # Two of them are the listener and the end that tells of the close.
        if len(selector.get_map()) > self._most_connections + 1:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, b"")

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        connection = key.fileobj
        assert isinstance(connection, socket.socket)
        received = _receive(connection)
        if received is None:
            return
        greeting: bytes = key.data + received
        if self._streams is not None and greeting[:1] == FIRST_BYTE:
            if received and len(greeting) < GREETING_BYTES:
                selector.modify(connection, selectors.EVENT_READ, greeting)
                return
            selector.unregister(connection)
            if not self._streams.admit(greeting, connection):
                connection.close()
        elif not received or not _answer(connection, received):
            selector.unregister(connection)
            connection.close()
            self._served.release()


def _receive(connection: socket.socket) -> bytes | None:
    """Return what was received: empty when the connection is over, None when nothing came."""
    try:
        return connection.recv(4096)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _answer(connection: socket.socket, message: bytes) -> bool:
    try:
        connection.send(message)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def measure_peers(
    addresses: Sequence[RankAddress], *, own_rank: int, timeout_s: float
) -> tuple[PeerRtt, ...]:
    """Time the way to every other rank and back, by rank.

    Raises:
        EmulationFailed: a rank did not answer within the time for all of them.
    """
    others = [address for address in addresses if address.rank != own_rank]
    if not others:
        return ()
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(PARALLEL_PEERS, thread_name_prefix="rtt") as pool:
        return tuple(pool.map(lambda address: _measure_peer(address, deadline), others))


def _measure_peer(address: RankAddress, deadline: float) -> PeerRtt:
    place = f"rank {address.rank} at {address.host}:{address.probe_port}"
    try:
        with socket.create_connection(
            (address.host, address.probe_port), timeout=left_s(deadline)
        ) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times_s = [_time_echo(connection, deadline) for _ in range(PROBE_COUNT)]
    except OSError as error:
        reason = str(error) or type(error).__name__
        raise EmulationFailed(f"round-trip time to {place} was not measured: {reason}") from error
    # The median leaves out the first one's slow path and whatever the scheduler did to a few.
    return PeerRtt(rank=address.rank, rtt_s=statistics.median(times_s), probe_count=len(times_s))


class LoadedEcho:
    """Times echoes of a peer on a connection of its own, beside whatever else the way carries."""

    def __init__(self, peer: RankAddress, *, deadline: float) -> None:
        """Connect while the way is still free. Raises OSError."""
        self._deadline = deadline
        self._connection = socket.create_connection(
            (peer.host, peer.probe_port), timeout=left_s(deadline)
        )
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._times_s: list[float] = []
        self._failure: OSError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loaded-rtt", daemon=True)

    def start(self, *, settled_s: float) -> None:
        """Echo from now until `stop`; what begins before `settled_s` is not counted."""
        self._counts_from = time.monotonic() + settled_s
        self._thread.start()

    def stop(self) -> tuple[float, ...]:
        """Return the times of the echoes, in seconds. Raises OSError: the peer did not answer."""
        self._stopped.set()
        self._thread.join()
        self._connection.close()
        if self._failure is not None:
            raise self._failure
        return tuple(self._times_s)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                begun = time.monotonic()
                taken_s = _time_echo(self._connection, self._deadline)
                if begun >= self._counts_from:
                    self._times_s.append(taken_s)
        except OSError as error:
            self._failure = error


def _time_echo(connection: socket.socket, deadline: float) -> float:
    connection.settimeout(left_s(deadline))
    begun = time.perf_counter()
    connection.sendall(_PAYLOAD)
    receive_exactly(connection, len(_PAYLOAD), deadline=deadline)
    return time.perf_counter() - begun
