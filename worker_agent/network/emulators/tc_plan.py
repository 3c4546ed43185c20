"""Translates delay, loss and bandwidth into settings of the kernel. Pure: numbers, no sockets.

The interface gets an HTB root with one class for the gang's packets. In the class is a netem
queue, which holds delay, jitter, loss and bandwidth. A filter for each address of a peer leads
into the class. What no filter matches passes the root directly, at the interface's full speed.

netem limits the bandwidth, not HTB: it computes when each packet leaves from when the one before
it left. A token bucket loses bandwidth whenever a timer is later than its burst lasts, and a
larger burst lets short messages pass without a limit.

Where a bandwidth is limited, a TBF queue without a limit of its own stands before netem. It cuts
what segmentation offload hands over in up to 64 KB into single packets, so that netem's limit,
which counts packets, limits bytes.
"""

from __future__ import annotations

import ipaddress
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from farm.configuration.spec import NetworkProfile
from worker_agent.network.delay_line import ASSUMED_BYTES_PER_S

# Handles are 16 bits of major and 16 of minor. Nobody picks these by chance, so that only what
# this module has planned is ever taken away again.
ROOT = 0xBF100000
GANG_CLASS = ROOT | 1
LEAF = 0xBF110000

SEGMENTER = 0xBF120000
# TBF's only class.
SEGMENTED = SEGMENTER | 1

# The rate of queues that must not limit anything: 400 Gbit/s.
UNLIMITED_BYTES_PER_S = 50_000_000_000
# A full packet, as netem counts it: 1500 bytes and the Ethernet header.
PACKET_BYTES = 1514
# How much may wait behind a limited bandwidth, beyond the packets in flight. Routers of wide area
# networks hold 50 to 100 ms. With fewer packets than the least, each new connection of a gang
# would lose some of its first ten.
SHAPED_QUEUE_S = 0.05
LEAST_QUEUED_PACKETS = 32
# netem's own default, for packets that wait behind no limit.
_DEFAULT_LIMIT = 1000
_LARGEST_LIMIT = 2**31 - 1

_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_TCP = 6
_SPARED_PRIO, _PEER_PRIO = 1, 10  # the lower is asked first; each protocol needs its own

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class NetemQueue:
    """netem's parameters. Its jitter is uniform: delay +- jitter, with no table of its own.

    `limit`: packets in flight and in the queue. `rate_bytes_per_s`: None where nothing is limited.
    """

    delay_us: int
    jitter_us: int
    loss_ratio: float
    limit: int
    rate_bytes_per_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TcFilter:
    """One u32 filter, as pyroute2 takes it: all of `keys` ("value/mask+offset") must match."""

    prio: int
    protocol: int
    keys: tuple[str, ...]
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPlan:
    """`queue` is None where the profile asks for nothing."""

    queue: NetemQueue | None
    filters: tuple[TcFilter, ...]


def owner_mark(state_dir: str) -> int:
    """Return the mark of an agent's queues, which is set as the root's default class of HTB.

    It is derived from the state directory, which differs for each agent of a machine. The lower
    half, which HTB takes for a class, names no class that exists.
    """
    return zlib.crc32(state_dir.encode()) | 0x8000


def make_plan(
    profile: NetworkProfile, *, peers: Iterable[IpAddress], spared_ports: Iterable[int]
) -> TcPlan:
    """Return the plan that shapes traffic to `peers`, except TCP from and to `spared_ports`."""
    spared = [_match_port(version, port) for port in spared_ports for version in (4, 6)]
    # A name may stand for one address twice.
    matched = [_match_peer(peer) for peer in dict.fromkeys(peers)]
    return TcPlan(
        queue=_queue(profile),
        filters=(*(f for pair in spared for f in pair), *matched),
    )


def queued_packets(bytes_per_s: float) -> int:
    """Return how many full packets may wait behind a limited bandwidth."""
    return max(LEAST_QUEUED_PACKETS, math.ceil(bytes_per_s * SHAPED_QUEUE_S / PACKET_BYTES))


def _queue(profile: NetworkProfile) -> NetemQueue | None:
    if profile.is_untouched:
        return None
    bandwidth = profile.bandwidth_bytes_per_s
    longest_s = profile.one_way_delay_s + profile.jitter_s
    if bandwidth is None:
        rate = None
        # Acknowledgements are packets too. What does not fit is dropped, a loss nobody asked for.
        limit = _DEFAULT_LIMIT + 2 * math.ceil(ASSUMED_BYTES_PER_S * longest_s / PACKET_BYTES)
    else:
        rate = max(1, round(min(bandwidth, UNLIMITED_BYTES_PER_S)))
        limit = math.ceil(rate * longest_s / PACKET_BYTES) + queued_packets(rate)
    return NetemQueue(
        delay_us=round(profile.one_way_delay_s * 1e6),
        jitter_us=round(profile.jitter_s * 1e6),
        loss_ratio=profile.packet_loss_ratio,
        limit=min(_LARGEST_LIMIT, limit),
        rate_bytes_per_s=rate,
    )


def _match_peer(peer: IpAddress) -> TcFilter:
    """Match the destination, which stands at byte 16 of an IPv4 header and at 24 of an IPv6 one."""
    packed, offset = peer.packed, 16 if peer.version == 4 else 24
    keys = tuple(
        f"0x{packed[i : i + 4].hex()}/0xffffffff+{offset + i}" for i in range(0, len(packed), 4)
    )
    return _filter(peer.version, _PEER_PRIO, keys, GANG_CLASS)


def _match_port(version: int, port: int) -> tuple[TcFilter, TcFilter]:
    """Match TCP from and to a port, in packets without IP options; the root takes them itself."""
    protocol_at, ports_at = (9, 20) if version == 4 else (6, 40)
    is_tcp = f"0x{_TCP:02x}/0xff+{protocol_at}"
    source, destination = (
        _filter(version, _SPARED_PRIO, (is_tcp, f"0x{port:04x}/0xffff+{at}"), ROOT)
        for at in (ports_at, ports_at + 2)
    )
    return source, destination


def _filter(version: int, prio: int, keys: tuple[str, ...], target: int) -> TcFilter:
    if version == 4:
        return TcFilter(prio=prio, protocol=_ETH_P_IP, keys=keys, target=target)
    return TcFilter(prio=prio + 1, protocol=_ETH_P_IPV6, keys=keys, target=target)
