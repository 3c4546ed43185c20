"""Holds connections for peers' bandwidth tests until their turn comes.

They arrive at the port of the probes, and begin with the peer's rank and the attempt's token.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass

_GREETING = struct.Struct("!16sQI?")  # what it is, the attempt's token, rank, is_settled
_MAGIC = b"visit-benchfarm!"
GREETING_BYTES = _GREETING.size
FIRST_BYTE = _MAGIC[:1]  # no probe begins with it


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingStream:
    """`is_settled`: the peer has timed all its round trips, and they are as asked."""

    rank: int
    is_settled: bool
    connection: socket.socket


def greeting(*, token: int, rank: int, is_settled: bool) -> bytes:
    """Return the first bytes of a stream."""
    return _GREETING.pack(_MAGIC, token, rank, is_settled)


class IncomingStreams:
    """At most one stream of each peer; other connections are refused."""

    def __init__(self, *, token: int, peers: frozenset[int]) -> None:
        self._token = token
        self._expected = peers
        self._waiting: dict[int, IncomingStream] = {}
        self._given: list[socket.socket] = []
        self._is_closed = False
        self._changed = threading.Condition()

    def admit(self, said: bytes, connection: socket.socket) -> bool:
        """Keep a connection, which is this object's from now on; False: it is none of ours."""
        if len(said) != _GREETING.size:
            return False
        magic, token, rank, is_settled = _GREETING.unpack(said)
        with self._changed:
            is_ours = magic == _MAGIC and token == self._token and rank in self._expected
            if not is_ours or self._is_closed:
                return False
            self._expected -= {rank}
            self._waiting[rank] = IncomingStream(
                rank=rank, is_settled=is_settled, connection=connection
            )
            self._changed.notify_all()
            return True

    def take(self, rank: int, *, deadline: float) -> IncomingStream:
        """Wait for a peer's stream. Raises TimeoutError: it has not come, or this is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: rank in self._waiting or self._is_closed,
                timeout=max(0.0, deadline - time.monotonic()),
            )
            if rank not in self._waiting:
                raise TimeoutError("it did not come to send")
            stream = self._waiting.pop(rank)
            self._given.append(stream.connection)
            return stream

    def close(self) -> None:
        """Close every stream, also those that were taken, which ends their use."""
        with self._changed:
            self._is_closed = True
            for stream in self._waiting.values():
                stream.connection.close()
            for connection in self._given:
                _hang_up(connection)
            self._waiting.clear()
            self._changed.notify_all()


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end has gone, or it is closed already
