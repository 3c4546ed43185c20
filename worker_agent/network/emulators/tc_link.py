"""The queues of one interface, read and set through netlink by pyroute2.

Its import costs a tenth of a second, which only those pay who shape.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.errors import EmulationFailed
from worker_agent.network.emulators.tc_message import (
    error_of,
    netem_options,
    new_queue,
    segmenter_options,
)
from worker_agent.network.emulators.tc_plan import (
    GANG_CLASS,
    LEAF,
    ROOT,
    SEGMENTED,
    SEGMENTER,
    UNLIMITED_BYTES_PER_S,
    Address,
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


def find_way(ip: IPRoute, address: Address) -> int | None:
    """Return the index of the interface over which an address is reached; None: there is none."""
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
    """Return what the queues, classes and filters of an interface are set to, by what they are.

    Nothing that they count is in it: as long as nobody touches them it stays the same.
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
    """Take away what `carry_out` has set for the owner, or a part, and nothing of anybody else's.

    Interfaces may have got another name since.
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
