"""Reads the kernel's byte counts for TCP connections of other processes.

It needs no privilege: /proc gives the owner of a socket, and the kernel its byte counts.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from farm.sampling.byte_count import ByteCount, tcp_byte_count

PROC = Path("/proc")

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_TCP_INFO_ATTRIBUTE = 2
_CONNECTED_STATES = 0xFFF & ~(1 << 6 | 1 << 10)  # neither TIME_WAIT nor LISTEN
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_INODE = struct.Struct("=68xI")  # the last field of struct inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_ERROR_CODE = struct.Struct("=i")


def socket_inodes(pid: int) -> set[int]:
    """Return the inodes of a process's sockets; none if it has gone or may not be looked at."""
    found: set[int] = set()
    try:
        descriptors = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            kind, _, rest = str(descriptor.readlink()).partition(":[")
        except OSError:
            continue  # closed since it was listed
        if kind == "socket":
            found.add(int(rest.removesuffix("]")))
    return found


def tcp_connections() -> dict[int, ByteCount]:
    """Return the byte counts of this network namespace's TCP connections, by socket inode.

    It takes no privilege.

    Raises:
        OSError: the kernel does not tell.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        asking.settimeout(1.0)
        connections: dict[int, ByteCount] = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(
                family, socket.IPPROTO_TCP, 1 << (_TCP_INFO_ATTRIBUTE - 1), _CONNECTED_STATES
            )
            length = _HEADER.size + len(request)
            header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
            asking.send(header + request)
            for message in _messages(asking):
                (inode,) = _INODE.unpack_from(message)
                count = tcp_byte_count(_tcp_info(message))
                if inode and count is not None:
                    connections[inode] = count
        return connections


def _messages(asking: socket.socket) -> Iterator[bytes]:
    while True:
        received = asking.recv(1 << 16)
        first = 0
        while first < len(received):
            length, kind, *_ = _HEADER.unpack_from(received, first)
            body = received[first + _HEADER.size : first + length]
            if kind == _DONE:
                return
            if kind == _ERROR:
                (code,) = _ERROR_CODE.unpack_from(body)
                raise OSError(-code, os.strerror(-code))
            yield body
            first += _aligned(length)


def _tcp_info(message: bytes) -> bytes:
    first = _INODE.size
    while first + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, first)
        if kind == _TCP_INFO_ATTRIBUTE:
            return message[first + _ATTRIBUTE.size : first + length]
        first += _aligned(max(length, _ATTRIBUTE.size))
    return b""


def _aligned(length: int) -> int:
    return (length + 3) & ~3
