"""Finds the local user at the other end of a connection through /proc/net/tcp.

An open farm needs no token, and every user of the machine can reach its port. Scripts run as the
farm's own user. They are therefore accepted only from that user and from root.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import request

from web.access.authentication import caller
from web.errors import RefusedRequest

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = "01"
_WORD = 4  # bytes; each is written in the byte order of the machine


def check_may_send_scripts() -> None:
    """Raises RefusedRequest: the farm has no tokens, and another user of this machine asks."""
    if not caller().is_farm_open:
        return
    uid = _uid_of_peer()
    if uid not in (0, os.geteuid()):
        who = "a user that is not known" if uid is None else f"user {uid}"
        raise RefusedRequest(
            HTTPStatus.FORBIDDEN,
            f"bundle: this farm has no tokens and takes scripts from user {os.geteuid()} alone, "
            f"not from {who}: `farm token create NAME --scope submit` makes one",
        )


def _uid_of_peer() -> int | None:
    """Return the user of the connection between two ends; None if there is none, or several.

    One port of the peer may have several connections, of several users, to other servers.
    """
    connection: Any = request.environ.get("gunicorn.socket")
    try:
        peer, own = connection.getpeername(), connection.getsockname()
    except (AttributeError, OSError):
        return None
    ends = tuple((_plain(ipaddress.ip_address(host)), port) for host, port, *_ in (peer, own))
    found = [uid for local, remote, uid in _connections() if (local, remote) == ends]
    return found[0] if len(found) == 1 else None


def _connections() -> Iterator[tuple[tuple[object, int], tuple[object, int], int]]:
    """Yield the local end, the other end and the user of each connection of this namespace."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 7 and fields[3] == _ESTABLISHED:
                yield _end(fields[1]), _end(fields[2]), int(fields[7])


def _end(text: str) -> tuple[object, int]:
    address, _, port = text.partition(":")
    return _address(address), int(port, 16)


def _address(text: str) -> object:
    words = bytes.fromhex(text)
    step = -1 if sys.byteorder == "little" else 1
    packed = b"".join(words[i : i + _WORD][::step] for i in range(0, len(words), _WORD))
    return _plain(ipaddress.ip_address(packed))


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> object:
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
