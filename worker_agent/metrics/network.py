"""Samples bytes received and sent: on a network interface, or over the trainers' TCP connections.

An interface counts the bytes of all processes. That is the load of the network, except on the
loopback interface, which carries the bytes of all ranks of the machine. There the payload of the
TCP connections of the trainers' processes is counted instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from farm.processes.tcp_connections import PROC, socket_inodes, tcp_connections
from farm.sampling.byte_count import ByteCount
from farm.sampling.names import LOOPBACK_INTERFACE
from farm.sampling.ticks import Rates
from worker_agent.metrics.contracts import Metric, Watched

_RESCAN_TICKS = 5
_UNKNOWN = {"net_rx_bytes_per_s": None, "net_tx_bytes_per_s": None}


def create(watched: Watched) -> Metric | None:
    if watched.interface != LOOPBACK_INTERFACE:
        return NetworkMetric(watched.interface)
    # Beyond the trainers is a proxy, which passes on what they have sent.
    trainers = watched.pids[: len(watched.roles)] if watched.roles else watched.pids
    return ConnectionsMetric(trainers)


class NetworkMetric:
    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._rates = Rates()

    def read(self, tick: int) -> dict[str, float | None]:
        """Read the counters; without the interface both are None until it is back."""
        # psutil would hide a reset of the counters as if they had wrapped.
        counters = psutil.net_io_counters(pernic=True, nowrap=False).get(self._interface)
        if counters is None:
            return dict(_UNKNOWN)
        return self._rates.update(
            tick,
            {
                "net_rx_bytes_per_s": counters.bytes_recv,
                "net_tx_bytes_per_s": counters.bytes_sent,
            },
        )


class ConnectionsMetric:
    """The payload bytes of the TCP connections of the trainers and their children."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        self._inodes: set[int] = set()
        self._scanned_tick: int | None = None
        self._previous: Mapping[int, ByteCount] = {}
        self._previous_tick: int | None = None

    def read(self, tick: int) -> dict[str, float | None]:
        """Return the growth over the second that ends at `tick`.

        A connection that is new since the last tick began at 0. The last bytes of a closed
        connection are lost. Once the last trainer has ended, both are None.
        """
        counts = tcp_connections()
        previous, previous_tick = self._previous, self._previous_tick
        self._previous, self._previous_tick = counts, tick
        # Looking whose a connection is costs more than counting, and seldom is there a new one.
        is_due = self._scanned_tick is None or tick >= self._scanned_tick + _RESCAN_TICKS
        if is_due or counts.keys() - previous.keys():
            self._inodes, self._scanned_tick = self._own_inodes(), tick
        if previous_tick != tick - 1 or not any(map(_is_there, self._roots)):
            return dict(_UNKNOWN)
        total = ByteCount(rx_bytes=0, tx_bytes=0)
        for inode in self._inodes & counts.keys():
            now, before = counts[inode], previous.get(inode)
            total = total.plus(now if before is None else now.minus(before))
        return {
            "net_rx_bytes_per_s": float(total.rx_bytes),
            "net_tx_bytes_per_s": float(total.tx_bytes),
        }

    def _own_inodes(self) -> set[int]:
        found: set[int] = set()
        for root in self._roots:
            try:
                tree = (root, *root.children(recursive=True))
            except psutil.NoSuchProcess:
                continue
            for process in tree:
                found |= socket_inodes(process.pid)
        return found


def _is_there(process: psutil.Process) -> bool:
    """Whether its connections can be read; a process that has ended has none."""
    try:
        return any((PROC / str(process.pid) / "fd").iterdir())
    except OSError:
        return False
