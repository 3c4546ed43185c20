"""Defaults that the agent reads from its machine where a setting is absent."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from urllib.parse import urlsplit

import psutil

from farm.broker.url import DEFAULT_PORT
from farm.errors import InvalidSpec, Unreachable
from farm.sampling.names import LOOPBACK_INTERFACE

_SHORT_NAME_BYTES = 16
_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_NLM_F_REQUEST, _IFLA_ALT_IFNAME = 1, 53
_ANSWER_LIMIT_S = 10.0


def address_towards(broker_url: str) -> str:
    """Return the address from which this machine reaches the broker.

    Raises:
        Unreachable: no route leads there, or the host's name is not known.
    """
    parts = urlsplit(broker_url)
    try:
        # Connecting a datagram socket sends nothing; it only asks the routing table.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname, parts.port or DEFAULT_PORT))
            address: str = probe.getsockname()[0]
            return address
    except OSError as error:
        # At boot the network may not be up yet: a condition that passes, and no wrong setting.
        raise Unreachable(
            f"no address of this machine leads to the broker at {parts.hostname} ({error}): "
            "check network and DNS, or set AGENT_ADVERTISE_ADDRESS"
        ) from None


def interface_index(name: str) -> int | None:
    """Return the index of the interface of that name, or None.

    The kernel itself resolves the name, which may be an alternative one (`ip link property add dev
    eth0 altname lan`) or the label of an address.
    """
    try:
        return socket.if_nametoindex(name)
    except OSError:
        # Names of more than 15 bytes, which only alternative ones have, it takes by netlink alone.
        return None if len(name.encode()) < _SHORT_NAME_BYTES else _index_by_netlink(name)


def _index_by_netlink(name: str) -> int | None:
    text = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), _IFLA_ALT_IFNAME) + text + bytes(-len(text) % 4)
    body = bytes(16) + attribute  # struct ifinfomsg, which names no interface
    request = struct.pack("=IHHII", 16 + len(body), _RTM_GETLINK, _NLM_F_REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(_ANSWER_LIMIT_S)
        kernel.send(request)
        answer = kernel.recv(65536)
    kind, index = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 20)[0]
    return int(index) if kind == _RTM_NEWLINK else None


def interface_of(given: str | None, address: str) -> str:
    """Return the interface `given` or, without one, the one that holds the address.

    Raises:
        InvalidSpec: there is no such interface, the address is unknown, or none holds it.
    """
    interfaces = psutil.net_if_addrs()
    if given is not None:
        index = interface_index(given)
        if index is None:
            raise InvalidSpec("AGENT_INTERFACE", given, f"one of {', '.join(interfaces)}")
        return socket.if_indextoname(index)
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidSpec(
            "AGENT_ADVERTISE_ADDRESS", address, f"an address or a known name ({error})"
        ) from None
    ips = {str(entry[4][0]).partition("%")[0] for entry in found}
    # A name may stand for an address of the loopback, too, as in many an /etc/hosts; ranks of other
    # machines reach it by the others.
    ips = {ip for ip in ips if not ipaddress.ip_address(ip).is_loopback}
    if not ips:
        return LOOPBACK_INTERFACE
    for name, addresses in interfaces.items():
        if any(known.address.partition("%")[0] in ips for known in addresses):
            # It may be the label of an address, such as eth0:1.
            index = interface_index(name)
            return name if index is None else socket.if_indextoname(index)
    # Behind address translation no interface holds the advertised address.
    held = " or ".join(sorted(ips))
    raise InvalidSpec("AGENT_INTERFACE", None, f"a name, since no interface here holds {held}")


def own_cpus(given: tuple[int, ...] | None) -> tuple[int, ...]:
    allowed = os.sched_getaffinity(0)
    if given is None:
        return tuple(sorted(allowed))
    if not set(given) <= allowed:
        expected = f"cores among {', '.join(map(str, sorted(allowed)))}"
        raise InvalidSpec("AGENT_CPUS", ",".join(map(str, given)), expected)
    return given
