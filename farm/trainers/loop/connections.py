"""What this process itself sent and received over TCP, by the kernel's count of each connection.

An interface counts everybody: other programs, other gangs, and on loopback each byte of every
rank. A connection counts its own payload, without headers and without what was sent again. It
needs no privilege, since a process may ask the kernel about its own sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from farm.sampling.byte_count import TCP_INFO_BYTES, ByteCount, tcp_byte_count

_DESCRIPTORS = Path("/proc/self/fd")

Connections = Mapping[int, ByteCount]  # by the inode of the socket


def read_connections() -> Connections | None:
    """Return the counts of this process's TCP sockets; None where the kernel does not tell."""
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
