"""What the agent asks of its machine where a setting does not say."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

import psutil

from farm.errors import InvalidSpec, Unreachable

LOOPBACK = "lo"
DEFAULT_PORT = 6379  # of a broker URL that names none


def address_towards(broker_url: str) -> str:
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


def interface_of(given: str | None, address: str) -> str:
    interfaces = psutil.net_if_addrs()
    if given is not None:
        if given not in interfaces:
            raise InvalidSpec("AGENT_INTERFACE", given, f"one of {', '.join(interfaces)}")
        return given
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidSpec(
            "AGENT_ADVERTISE_ADDRESS", address, f"an address or a known name ({error})"
        ) from None
    ips = {str(entry[4][0]).partition("%")[0] for entry in found}
    if all(ipaddress.ip_address(ip).is_loopback for ip in ips):
        return LOOPBACK
    for name, addresses in interfaces.items():
        if any(known.address.partition("%")[0] in ips for known in addresses):
            return name
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
