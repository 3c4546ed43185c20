"""Round-trip times between ranks: an echo that each rank offers, and a client that times it."""

from __future__ import annotations

import logging
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from farm.core.commands import RankAddress
from farm.core.reports import PeerRtt
from farm.errors import EmulationFailed

logger = logging.getLogger(__name__)

PROBE_COUNT = 20
_PAYLOAD = b"benchfarm-probe!"
# More at once would measure this process instead of the network.
_PARALLEL_PEERS = 4


class EchoServer:
    """Echoes what connects to `listener`, which it owns, until `close`."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._closing = threading.Event()
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
        self._closing.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closing.is_set():
                for key, _ in selector.select(timeout=0.2):
                    assert isinstance(key.fileobj, socket.socket)
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif not _echo(key.fileobj):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        self._served.release()
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it went away between its arrival and now
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)


def _echo(connection: socket.socket) -> bool:
    try:
        data = connection.recv(4096)
        if data:
            connection.send(data)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return bool(data)


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
    with ThreadPoolExecutor(_PARALLEL_PEERS, thread_name_prefix="rtt") as pool:
        return tuple(pool.map(lambda address: _measure_peer(address, deadline), others))


def _measure_peer(address: RankAddress, deadline: float) -> PeerRtt:
    place = f"rank {address.rank} at {address.host}:{address.probe_port}"
    try:
        with socket.create_connection(
            (address.host, address.probe_port), timeout=_left_s(deadline)
        ) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times_s = [_time_echo(connection, deadline) for _ in range(PROBE_COUNT)]
    except OSError as error:
        reason = str(error) or type(error).__name__
        raise EmulationFailed(f"round-trip time to {place} was not measured: {reason}") from error
    # The median leaves out the first one's slow path and whatever the scheduler did to a few.
    return PeerRtt(rank=address.rank, rtt_s=statistics.median(times_s), probe_count=len(times_s))


def _time_echo(connection: socket.socket, deadline: float) -> float:
    connection.settimeout(_left_s(deadline))
    begun = time.perf_counter()
    connection.sendall(_PAYLOAD)
    missing = len(_PAYLOAD)
    while missing:
        data = connection.recv(missing)
        if not data:
            raise ConnectionResetError("the probe was closed")
        missing -= len(data)
    return time.perf_counter() - begun


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
