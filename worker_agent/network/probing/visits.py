"""Connections by which peers come to this rank to send it something, kept until it is their turn.

They come to the port of the probes, and say at once who they are.
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
class Visit:
    """`is_settled`: the visitor has timed all its round trips, and they are as asked."""

    rank: int
    is_settled: bool
    connection: socket.socket


def greeting(*, token: int, rank: int, is_settled: bool) -> bytes:
    """Return the first bytes of a visit."""
    return _GREETING.pack(_MAGIC, token, rank, is_settled)


class Visits:
    """At most one visit of each peer; whoever else comes is sent away."""

    def __init__(self, *, token: int, peers: frozenset[int]) -> None:
        self._token = token
        self._expected = peers
        self._waiting: dict[int, Visit] = {}
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
            self._waiting[rank] = Visit(rank=rank, is_settled=is_settled, connection=connection)
            self._changed.notify_all()
            return True

    def take(self, rank: int, *, deadline: float) -> Visit:
        """Wait for a peer's visit. Raises TimeoutError: it has not come, or nobody may any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: rank in self._waiting or self._is_closed,
                timeout=max(0.0, deadline - time.monotonic()),
            )
            if rank not in self._waiting:
                raise TimeoutError("it did not come to send")
            visit = self._waiting.pop(rank)
            self._given.append(visit.connection)
            return visit

    def close(self) -> None:
        """End every visit, also those that were taken; whoever is at one notices."""
        with self._changed:
            self._is_closed = True
            for visit in self._waiting.values():
                visit.connection.close()
            for connection in self._given:
                _hang_up(connection)
            self._waiting.clear()
            self._changed.notify_all()


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end has gone, or it is closed already
