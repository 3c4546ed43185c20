"""The timed window: when timed steps begin and end, and the bytes exchanged in it."""

from __future__ import annotations

import copy
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

from farm.messages.trainer_lines import (
    INTERFACE,
    TIMED_PARTS,
    WINDOW_CPU_RATIO,
    WINDOW_TRAINING_S,
    TimedPart,
)
from farm.sampling.byte_count import TCP_INFO_BYTES, ByteCount, tcp_byte_count
from farm.sampling.ticks import TICK_S
from farm.values.codec import to_json
from farm.values.ranges import MOST_COUNTED_SHARE

# Of this process's own network namespace. /sys/class/net has the interfaces of the namespace in
# which it was mounted, and none of a lab's host.
STATISTICS = Path("/proc/self/net/dev")
_TX_BYTES_COLUMN = 8  # rx_bytes is the first
_DESCRIPTORS = Path("/proc/self/fd")

Connections = Mapping[int, ByteCount]  # by the inode of the socket


def read_interface(interface: str, *, statistics: Path = STATISTICS) -> ByteCount | None:
    """Read the counters of a whole interface; None where there is no such interface."""
    try:
        lines = statistics.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            values = counters.split()
            return ByteCount(rx_bytes=int(values[0]), tx_bytes=int(values[_TX_BYTES_COLUMN]))
    return None


class WindowFigures(TypedDict):
    """Fields of a `TrainerResult`."""

    timed_window_s: float
    timed_begun_monotonic_s: float
    interface_rx_bytes: int | None
    interface_tx_bytes: int | None
    payload_rx_bytes: int | None
    payload_tx_bytes: int | None


class TimedWindow:
    """Opened and closed around each part that counts: once by steps, once an epoch by epochs.

    `stop` ends the time of a part, `close` its bytes. A rank waits for its peers in between: what
    the framework still holds of the last step has been handed to the kernel once they have it.

    `interface_bytes` (everything on the interface), `payload_bytes` (this process's own TCP
    connections), `cpu_s` (of this process), `parts` and `duration_s` are of the open parts alone,
    so that evaluation and waiting between epochs are not in them; `span_s` is from the first begin
    to the last end.
    """

    def __init__(
        self,
        interface: str,
        *,
        statistics: Path = STATISTICS,
        connections: Callable[[], Connections | None] | None = None,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        """Count this process, or what `connections` and `cpu_s` read of others."""
        self._read_connections = connections or read_connections
        self._read_cpu_s = cpu_s
        self._interface = interface
        self._statistics = statistics
        self._interface_at_open: ByteCount | None = None
        self._connections_at_open: Connections | None = None
        self._opened_at_s = 0.0
        self._cpu_at_open_s = 0.0
        self._ended_s: float | None = None
        self.begun_s: float | None = None  # CLOCK_MONOTONIC
        self.parts: list[TimedPart] = []
        self.cpu_s = 0.0
        self.interface_bytes: ByteCount | None = ByteCount(rx_bytes=0, tx_bytes=0)
        self.payload_bytes: ByteCount | None = ByteCount(rx_bytes=0, tx_bytes=0)

    @property
    def span_s(self) -> float:
        assert self.parts, "the window was never closed"
        return self.parts[-1].end_s

    @property
    def duration_s(self) -> float:
        return math.fsum(part.end_s - part.begin_s for part in self.parts)

    def open(self, at_s: float | None = None) -> None:
        """Begin a part, now or at an instant that has just passed."""
        self._connections_at_open = self._read_connections()
        self._interface_at_open = read_interface(self._interface, statistics=self._statistics)
        self._ended_s = None
        self._cpu_at_open_s = self._read_cpu_s()
        self._opened_at_s = time.monotonic() if at_s is None else at_s
        if self.begun_s is None:
            self.begun_s = self._opened_at_s

    def stop(self, at_s: float | None = None) -> None:
        """End the time of a part, now or at an instant that has just passed."""
        self._ended_s = time.monotonic() if at_s is None else at_s
        self.cpu_s += self._read_cpu_s() - self._cpu_at_open_s

    def close(self) -> None:
        """End a timed part, and add what the counters grew by since it was opened."""
        if self._ended_s is None:
            self.stop()
        assert self.begun_s is not None
        assert self._ended_s is not None
        self.parts.append(
            TimedPart(begin_s=self._opened_at_s - self.begun_s, end_s=self._ended_s - self.begun_s)
        )
        interface = read_interface(self._interface, statistics=self._statistics)
        connections = self._read_connections()
        self.interface_bytes = _add(
            self.interface_bytes, _difference(self._interface_at_open, interface)
        )
        self.payload_bytes = _add(
            self.payload_bytes, growth(self._connections_at_open, connections)
        )

    def ended_at(self, at_s: float) -> TimedWindow:
        """Return the window as if its open part ended now, at an instant that has just passed."""
        ended = copy.copy(self)
        ended.parts = list(self.parts)
        ended.stop(at_s)
        ended.close()
        return ended

    def figures(self) -> WindowFigures:
        """Return the fields of a result with the window's time and counts."""
        assert self.begun_s is not None, "the window was never opened"
        interface, payload = self.interface_bytes, self.payload_bytes
        return WindowFigures(
            timed_window_s=self.span_s,
            timed_begun_monotonic_s=self.begun_s,
            interface_rx_bytes=interface.rx_bytes if interface else None,
            interface_tx_bytes=interface.tx_bytes if interface else None,
            payload_rx_bytes=payload.rx_bytes if payload else None,
            payload_tx_bytes=payload.tx_bytes if payload else None,
        )

    def details(self, core_count: int) -> dict[str, object]:
        """Return the details of the window for a result, beside its bytes and its length."""
        return {
            INTERFACE: self._interface,
            TIMED_PARTS: to_json([p for p in self.parts if p.end_s - p.begin_s >= TICK_S]),
            WINDOW_TRAINING_S: self.duration_s,
            WINDOW_CPU_RATIO: _share(self.cpu_s / self.duration_s / core_count),
        }


def _share(ratio: float) -> float | None:
    """Return the share; None where the time was too short beside reading two clocks.

    Or where processes that were counted at the begin have ended, and taken their time along.
    """
    return ratio if 0 <= ratio <= MOST_COUNTED_SHARE else None


def _difference(before: ByteCount | None, after: ByteCount | None) -> ByteCount | None:
    """Return the growth of a counter; None after a missing reading or a reset."""
    if before is None or after is None:
        return None
    rx_bytes, tx_bytes = after.rx_bytes - before.rx_bytes, after.tx_bytes - before.tx_bytes
    if rx_bytes < 0 or tx_bytes < 0:
        return None
    return ByteCount(rx_bytes=rx_bytes, tx_bytes=tx_bytes)


def _add(total: ByteCount | None, part: ByteCount | None) -> ByteCount | None:
    """Add a part; what was missed once is missing from the total for good."""
    return None if total is None or part is None else total.plus(part)


def read_connections() -> Connections | None:
    """Return the counts of this process's TCP sockets; None if the kernel has none.

    An interface counts everybody: other programs, other gangs, and on loopback each byte of every
    rank. A connection counts its own payload, without headers and without what was sent again. It
    needs no privilege, since a process may ask the kernel about its own sockets.
    """
    try:
        descriptors = [int(entry.name) for entry in _DESCRIPTORS.iterdir()]
        found = [_read(descriptor) for descriptor in descriptors]
    except OSError:
        return None
    connections: dict[int, ByteCount] = {}
    for inode, count in (read for read in found if read is not None):
        if count is None:
            return None
        connections[inode] = count
    return connections


def growth(before: Connections | None, after: Connections | None) -> ByteCount | None:
    """Return what passed between two readings, over the connections that stand at the second.

    A connection that is new at the second began at 0. One that has gone takes its last bytes with
    it; a gang's connections stay up as long as it trains.
    """
    if before is None or after is None:
        return None
    nothing = ByteCount(rx_bytes=0, tx_bytes=0)
    return ByteCount(
        rx_bytes=sum(c.rx_bytes - before.get(i, nothing).rx_bytes for i, c in after.items()),
        tx_bytes=sum(c.tx_bytes - before.get(i, nothing).tx_bytes for i, c in after.items()),
    )


def _read(descriptor: int) -> tuple[int, ByteCount | None] | None:
    """Return inode and count of a TCP socket; None for whatever else the descriptor is.

    A copy is asked, since the original may be closed, and its number reused, at any moment.
    """
    try:
        copy = os.dup(descriptor)
    except OSError:
        return None  # closed since it was listed
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    with connection:
        if connection.proto != socket.IPPROTO_TCP:
            return None
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return os.fstat(copy).st_ino, tcp_byte_count(info)
