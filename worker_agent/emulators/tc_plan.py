"""What the kernel is told for a network profile. Pure: numbers and matches, no sockets.

The interface gets an HTB root with one class, which holds the bandwidth, and in it a netem queue,
which holds delay, jitter and loss. A filter for each address of a peer leads into the class; what
no filter matches passes the root directly, at the interface's full speed. netem could limit the
bandwidth as well, but pyroute2 0.9.7 encodes that wrongly.
"""

from __future__ import annotations

import ipaddress
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from farm.core.spec import NetworkProfile

# Handles are 16 bits of major and 16 of minor. Nobody picks these by chance, so that only what
# this module has planned is ever taken away again.
ROOT = 0xBF100000
GANG_CLASS = ROOT | 1
LEAF = 0xBF110000

# The class of a profile without a bandwidth still needs one: 400 Gbit/s.
UNLIMITED_BYTES_PER_S = 50_000_000_000
# Packets in flight are counted for the link as fast as it may be, at this speed if unlimited.
_ASSUMED_BYTES_PER_S = 1.25e9
_PACKET_BYTES = 1500
_DEFAULT_LIMIT = 1000  # netem's own
_LARGEST_LIMIT = 2**31 - 1
# What may pass at once after a pause. Less than a packet and the kernel's timers would limit the
# bandwidth; much more and a short message would not notice the limit.
_BURST_S = 0.001
_LEAST_BURST_BYTES = 1600

_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_TCP = 6
_SPARED_PRIO, _PEER_PRIO = 1, 10  # the lower is asked first; each protocol needs its own

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class NetemQueue:
    """netem's parameters. Its jitter is uniform: delay +- jitter, with no table of its own."""

    delay_us: int
    jitter_us: int
    loss_percent: float
    limit: int  # packets


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One u32 filter, as pyroute2 takes it: all of `keys` ("value/mask+offset") must match."""

    prio: int
    protocol: int
    keys: tuple[str, ...]
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`queue` is None where nothing but the bandwidth is asked for."""

    rate_bytes_per_s: int
    burst_bytes: int
    queue: NetemQueue | None
    filters: tuple[Filter, ...]


def owner_mark(state_dir: str) -> int:
    """Return what the root of an agent's queues bears in the place of HTB's default class.

    Agents of one machine have a state directory each. The lower half, which HTB takes for a class,
    names none that is ever made.
    """
    return zlib.crc32(state_dir.encode()) | 0x8000


def make_plan(
    profile: NetworkProfile, *, peers: Iterable[Address], spared_ports: Iterable[int]
) -> Plan:
    """Return what shapes the way to `peers` and spares TCP from and to `spared_ports`."""
    bandwidth = profile.bandwidth_bytes_per_s
    limited = None if bandwidth is None else min(bandwidth, UNLIMITED_BYTES_PER_S)
    rate = UNLIMITED_BYTES_PER_S if limited is None else max(1, round(limited))
    spared = [_match_port(version, port) for port in spared_ports for version in (4, 6)]
    # A name may stand for one address twice.
    matched = [_match_peer(peer) for peer in dict.fromkeys(peers)]
    return Plan(
        rate_bytes_per_s=rate,
        burst_bytes=max(_LEAST_BURST_BYTES, round(rate * _BURST_S)),
        queue=_queue(profile, limited),
        filters=(*(f for pair in spared for f in pair), *matched),
    )


def _queue(profile: NetworkProfile, limited_bytes_per_s: float | None) -> NetemQueue | None:
    if not (profile.one_way_delay_s or profile.jitter_s or profile.packet_loss_ratio):
        return None
    longest_s = profile.one_way_delay_s + profile.jitter_s
    in_flight = (limited_bytes_per_s or _ASSUMED_BYTES_PER_S) * longest_s / _PACKET_BYTES
    return NetemQueue(
        delay_us=round(profile.one_way_delay_s * 1e6),
        jitter_us=round(profile.jitter_s * 1e6),
        loss_percent=profile.packet_loss_ratio * 100,
        # Acknowledgements are packets too. What does not fit is dropped, a loss nobody asked for.
        limit=min(_LARGEST_LIMIT, _DEFAULT_LIMIT + 2 * math.ceil(in_flight)),
    )


def _match_peer(peer: Address) -> Filter:
    """Match the destination, which stands at byte 16 of an IPv4 header and at 24 of an IPv6 one."""
    packed, offset = peer.packed, 16 if peer.version == 4 else 24
    keys = tuple(
        f"0x{packed[i : i + 4].hex()}/0xffffffff+{offset + i}" for i in range(0, len(packed), 4)
    )
    return _filter(peer.version, _PEER_PRIO, keys, GANG_CLASS)


def _match_port(version: int, port: int) -> tuple[Filter, Filter]:
    """Match TCP from and to a port, in packets without IP options; the root takes them itself."""
    protocol_at, ports_at = (9, 20) if version == 4 else (6, 40)
    is_tcp = f"0x{_TCP:02x}/0xff+{protocol_at}"
    source, destination = (
        _filter(version, _SPARED_PRIO, (is_tcp, f"0x{port:04x}/0xffff+{at}"), ROOT)
        for at in (ports_at, ports_at + 2)
    )
    return source, destination


def _filter(version: int, prio: int, keys: tuple[str, ...], target: int) -> Filter:
    if version == 4:
        return Filter(prio=prio, protocol=_ETH_P_IP, keys=keys, target=target)
    return Filter(prio=prio + 1, protocol=_ETH_P_IPV6, keys=keys, target=target)
