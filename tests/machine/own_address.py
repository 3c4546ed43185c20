"""An address of this machine that is not its loopback, for what is refused beyond that."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from farm.embedded.redis import LOOPBACK_ADDRESS


def own_address() -> str:
    """Return it, or the loopback of a machine that has no other."""
    for addresses in psutil.net_if_addrs().values():
        for found in addresses:
            if found.family is not socket.AF_INET:
                continue
            address = ipaddress.ip_address(found.address)
            if not (address.is_loopback or address.is_link_local):
                return found.address
    return LOOPBACK_ADDRESS
