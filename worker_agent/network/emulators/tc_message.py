"""Netlink messages for queues that pyroute2 cannot write. Pure.

pyroute2 0.9.7 sends netem's `rate` a second time, as an attribute that the kernel refuses, and
knows neither rates of more than 32 bits for netem and TBF nor TBF's burst. The layouts are those
of linux/pkt_sched.h and linux/rtnetlink.h.
"""

from __future__ import annotations

import struct

from worker_agent.network.emulators.tc_plan import UNLIMITED_BYTES_PER_S, NetemQueue

# The packet scheduler's clock since Linux 2.6.31, which /proc/net/psched shows.
TICK_NS = 64

_RTM_NEWQDISC = 36
_REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TCA_NETEM_RATE, _TCA_NETEM_RATE64 = 6, 8
_TCA_TBF_PARMS, _TCA_TBF_RATE64, _TCA_TBF_BURST = 1, 4, 6
_LINKLAYER_ETHERNET = 1
_MOST_32 = 2**32 - 1
_WITHOUT_LIMIT = 2**31 - 1


def new_queue(kind: str, index: int, handle: int, *, parent: int, options: bytes) -> bytes:
    """Return the request for a queue where there is none yet."""
    body = struct.pack("=B3xiIII", 0, index, handle, parent, 0)
    body += _attribute(_TCA_KIND, kind.encode() + b"\0") + _attribute(_TCA_OPTIONS, options)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, _REQUEST_ACK_EXCL_CREATE, 1, 0)
    return header + body


def error_of(answer: bytes) -> int:
    """Return the error number of the kernel's acknowledgement; 0: it has done it."""
    (code,) = struct.unpack_from("=i", answer, 16)
    return -int(code)


def netem_options(queue: NetemQueue) -> bytes:
    """Return `struct tc_netem_qopt` and the rate."""
    gap = duplicate = 0
    options = struct.pack(
        "=6I",
        _ticks(queue.delay_us),
        queue.limit,
        round(queue.loss_ratio * _MOST_32),
        gap,
        duplicate,
        _ticks(queue.jitter_us),
    )
    rate = queue.rate_bytes_per_s
    if rate is None:
        return options
    packet_overhead = cell_size = cell_overhead = 0
    narrow = struct.pack("=IiIi", min(rate, _MOST_32), packet_overhead, cell_size, cell_overhead)
    options += _attribute(_TCA_NETEM_RATE, narrow)
    return options + _rate64(_TCA_NETEM_RATE64, rate)


def segmenter_options(mtu: int) -> bytes:
    """Return those of a TBF queue that lets single packets pass as fast as they come.

    What is longer than its burst it cuts into segments, so the burst is one packet: the interface's
    `mtu` and room for the link's headers.
    """
    burst = mtu + 32
    no_log = overhead = align = least = 0
    rate = struct.pack("=BBHhHI", no_log, _LINKLAYER_ETHERNET, overhead, align, least, _MOST_32)
    no_peak = bytes(12)
    buffer = mtu_at_peak = 0  # `buffer` follows from the burst
    parameters = rate + no_peak + struct.pack("=III", _WITHOUT_LIMIT, buffer, mtu_at_peak)
    return (
        _attribute(_TCA_TBF_PARMS, parameters)
        + _rate64(_TCA_TBF_RATE64, UNLIMITED_BYTES_PER_S)
        + _attribute(_TCA_TBF_BURST, struct.pack("=I", burst))
    )


def _rate64(number: int, rate: int) -> bytes:
    return _attribute(number, struct.pack("=Q", rate)) if rate > _MOST_32 else b""


def _attribute(number: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)


def _ticks(time_us: int) -> int:
    return time_us * 1000 // TICK_NS
