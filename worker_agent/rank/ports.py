"""Reserves the ports of one rank until its trainer opens them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from farm.errors import TrainerFailed


class PortRange:
    """Hands out free ports, each time from where it stopped the last time.

    A port that was used a moment ago may still be in use by late connections of the attempt
    before, so the whole range comes first.
    """

    def __init__(self, first: int, last: int) -> None:
        self._first = first
        self._count = last - first + 1
        self._offset = 0

    def hold(self, count: int) -> list[socket.socket]:
        """Return sockets bound to `count` free ports on all addresses; the caller closes them.

        Nothing listens on them yet. They are bound without SO_REUSEADDR, so that another
        process on this machine finds them taken.

        Raises:
            TrainerFailed: the range has not so many free ports.
        """
        held: list[socket.socket] = []
        for port in self._candidates():
            candidate = _socket_for_all()
            try:
                candidate.bind(("", port))
            except OSError:
                candidate.close()
                continue
            held.append(candidate)
            if len(held) == count:
                return held
        for candidate in held:
            candidate.close()
        raise TrainerFailed(
            f"AGENT_PORT_RANGE {self._first}-{self._first + self._count - 1}: "
            f"expected {count} free ports, got {len(held)}"
        )

    def _candidates(self) -> Iterator[int]:
        start = self._offset
        for step in range(self._count):
            self._offset = (start + step + 1) % self._count
            yield self._first + (start + step) % self._count


def _socket_for_all() -> socket.socket:
    """Return one that takes connections over IPv4, and over IPv6 where this machine has it."""
    if not socket.has_dualstack_ipv6():
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def port_of(held: socket.socket) -> int:
    """Return the port that a socket is bound to."""
    port: int = held.getsockname()[1]
    return port
