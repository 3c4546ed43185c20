"""Reads and sets the kernel's queues of one network interface, through netlink by pyroute2.

Importing pyroute2 takes a tenth of a second, so only agents that shape the network import it.

Messages for netem and TBF are packed here. pyroute2 0.9.7 sends netem's `rate` a second time, as an
attribute that the kernel refuses, and knows neither rates of more than 32 bits for netem and TBF
nor TBF's burst. The layouts are those of linux/pkt_sched.h and linux/rtnetlink.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.errors import EmulationFailed
from worker_agent.network.emulators.tc_plan import (
    GANG_CLASS,
    LEAF,
    ROOT,
    SEGMENTED,
    SEGMENTER,
    UNLIMITED_BYTES_PER_S,
    IpAddress,
    NetemQueue,
    TcPlan,
)

if TYPE_CHECKING:
    from pyroute2 import IPRoute

_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH)
_TC_H_ROOT = 0xFFFFFFFF
# The class has no limit, so its bucket only has to be larger than any packet. The kernel logs a
# warning about a class of that rate unless the class sets a quantum.
_BURST_BYTES = 50_000_000
_QUANTUM_BYTES = 60_000
_ANSWER_LIMIT_S = 10.0
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
    """Return the options of a TBF queue that does not limit the rate.

    It cuts anything longer than its burst into segments, so the burst is one packet: the
    interface's `mtu` plus the link's headers.
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


@contextmanager
def open_netlink(failure: str) -> Iterator[IPRoute]:
    """Open netlink; what the kernel refuses is an EmulationFailed that begins with `failure`."""
    try:
        from pyroute2 import IPRoute, NetlinkError
    except ImportError:
        raise EmulationFailed(
            f"{failure}: pyroute2 is not installed: pip install 'benchfarm[agent]'"
        ) from None
    try:
        with IPRoute() as ip:
            yield ip
    except (NetlinkError, OSError) as error:
        code = error.code if isinstance(error, NetlinkError) else error.errno
        reason = os.strerror(code) if code else str(error)
        hint = ": CAP_NET_ADMIN is needed" if code in (errno.EPERM, errno.EACCES) else ""
        raise EmulationFailed(f"{failure}: {reason}{hint}") from error


def find_route(ip: IPRoute, address: IpAddress) -> int | None:
    """Return the index of the interface over which an address is reached; None: no route."""
    from pyroute2 import NetlinkError

    try:
        way: int = ip.route("get", dst=str(address))[0].get_attr("RTA_OIF")
    except NetlinkError as error:
        if error.code in _NO_WAY:
            return None
        raise
    return way


@dataclass(frozen=True, slots=True, kw_only=True)
class RootQueue:
    """The kernel's own default has handle 0. `owner` is the mark of the agent that has set it."""

    index: int  # of its interface
    kind: str
    handle: int
    owner: int | None


def root_queues(ip: IPRoute) -> Iterator[RootQueue]:
    """Return the root queue of every interface that has one."""
    for queue in ip.get_qdiscs():
        if queue["parent"] != _TC_H_ROOT:
            continue
        kind, handle, owner = queue.get_attr("TCA_KIND"), queue["handle"], None
        if (kind, handle) == ("htb", ROOT):
            owner = queue.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_INIT")["defcls"]
        yield RootQueue(index=queue["index"], kind=kind, handle=handle, owner=owner)


def carry_out(ip: IPRoute, index: int, plan: TcPlan, *, owner: int) -> None:
    """Set a plan on an interface that still has the kernel's default queue.

    Raises:
        EmulationFailed: this kernel lacks a part. NetlinkError: it refuses for another reason.
    """
    # The mark names no class: what matches no filter has none, and passes by.
    _ask(ip, "add", "htb", index, ROOT, default=owner)
    _ask(
        ip,
        *("add-class", "htb", index, GANG_CLASS),
        parent=ROOT,
        rate=UNLIMITED_BYTES_PER_S,
        burst=_BURST_BYTES,
        cburst=_BURST_BYTES,
        quantum=_QUANTUM_BYTES,
    )
    if plan.queue is not None:
        _add_netem(ip, index, plan.queue)
    for one in plan.filters:
        _ask(
            ip,
            *("add-filter", "u32", index),
            parent=ROOT,
            prio=one.prio,
            protocol=one.protocol,
            target=one.target,
            keys=list(one.keys),
        )


def read_settings(ip: IPRoute, index: int) -> dict[str, str]:
    """Return the settings of an interface's queues, classes and filters, by their identity.

    Counters are not included, so the result is constant until somebody changes a setting.
    """
    found = {}
    for queue in ip.get_qdiscs():
        if queue["index"] != index:
            continue
        kind, options = queue.get_attr("TCA_KIND"), queue.get_attr("TCA_OPTIONS")
        if kind == "htb":
            options = options.get_attr("TCA_HTB_INIT")["defcls"]  # beside it a count of packets
        found[f"queue {queue['handle'] >> 16:x}:"] = f"{kind} {options}"
    for one in ip.get_classes(index=index):
        found[f"class {_name(one['handle'])}"] = str(one.get_attr("TCA_OPTIONS"))
    for one in ip.get_filters(index=index, parent=ROOT):
        options = one.get_attr("TCA_OPTIONS")
        target = options.get_attr("TCA_U32_CLASSID") if options else None
        if target is not None:  # not a table of filters
            match = options.get_attr("TCA_U32_SEL")
            found[f"filter {one['handle']:x}"] = f"{match} to {_name(target)}"
    return found


def _name(handle: int) -> str:
    return f"{handle >> 16:x}:{handle & 0xFFFF:x}"


def remove_plans(ip: IPRoute, *, owner: int) -> None:
    """Remove all that `carry_out` has set for the owner, even partly, and nothing else.

    Interfaces may have been renamed since.
    """
    for queue in list(root_queues(ip)):
        if queue.owner == owner:
            # By its handle the kernel refuses this (EINVAL).
            ip.tc("del", index=queue.index, parent=_TC_H_ROOT)


def _add_netem(ip: IPRoute, index: int, queue: NetemQueue) -> None:
    parent = GANG_CLASS
    if queue.rate_bytes_per_s is not None:
        mtu = int(ip.get_links(index)[0].get_attr("IFLA_MTU"))
        options = segmenter_options(mtu)
        _add_queue("tbf", index, SEGMENTER, parent=parent, options=options)
        parent = SEGMENTED
    _add_queue("netem", index, LEAF, parent=parent, options=netem_options(queue))


def _add_queue(kind: str, index: int, handle: int, *, parent: int, options: bytes) -> None:
    """Add a queue that pyroute2 cannot describe.

    Raises:
        EmulationFailed: this kernel lacks it. OSError: it refuses for another reason.
    """
    request = new_queue(kind, index, handle, parent=parent, options=options)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(_ANSWER_LIMIT_S)
        kernel.bind((0, 0))
        kernel.send(request)
        code = error_of(kernel.recv(65536))
    if code == errno.ENOENT:
        raise EmulationFailed(_lacking(kind))
    if code:
        raise OSError(code, os.strerror(code))


def _ask(
    ip: IPRoute, command: str, kind: str, index: int, handle: int = 0, **parameters: object
) -> None:
    from pyroute2 import NetlinkError

    try:
        ip.tc(command, kind, index, handle, **parameters)
    except NetlinkError as error:
        if error.code != errno.ENOENT:
            raise
        raise EmulationFailed(_lacking(kind)) from error


def _lacking(kind: str) -> str:
    return f"this kernel has no {kind}: install the extra modules package of your kernel"
