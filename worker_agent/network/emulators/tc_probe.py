"""Whether this process and this kernel can do what tc_netem needs, tried on a throw-away interface.

It is never up, and lies in a network namespace of its own where that is permitted (to root), so
that nothing of the machine is touched. An agent that has CAP_NET_ADMIN alone makes it among the
machine's own, for some milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from worker_agent.machine.machine import interface_index
from worker_agent.network.emulators.tc_link import carry_out, open_netlink
from worker_agent.network.emulators.tc_plan import make_plan, owner_mark
from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

if TYPE_CHECKING:
    from pyroute2 import IPRoute

logger = logging.getLogger(__name__)

_CLONE_NEWNET = 0x40000000
_STATUS = Path("/proc/thread-self/status")
# Any will do that exists without hardware; minimal kernels lack one or the other.
_KINDS = ("dummy", "ifb", "veth")
# All that a profile may ask for at once. The addresses are those of documentation.
_PROFILE = NetworkProfile(
    one_way_delay_s=0.02, jitter_s=0.001, packet_loss_ratio=0.01, bandwidth_bytes_per_s=1e6
)
_PEERS = (ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("2001:db8::1"))


def find_obstacle() -> str | None:
    """Return in one line what is missing and what to do about it; None when nothing is."""
    if not _may_administer():
        return "no CAP_NET_ADMIN: let systemd grant it (AmbientCapabilities), or run as root"
    found = ["the probe ended before its time"]

    def probe() -> None:
        try:
            _try_out()
            found.clear()
        except EmulationFailed as error:
            found[0] = str(error)

    # A namespace belongs to the thread that enters it, and goes with it.
    thread = threading.Thread(target=probe, name="probe-netem", daemon=True)
    thread.start()
    thread.join()
    return found[0] if found else None


def _may_administer() -> bool:
    lines = dict(line.partition(":")[::2] for line in _STATUS.read_text().splitlines())
    return bool(int(lines["CapEff"], 16) >> CAP_NET_ADMIN & 1)


def _try_out() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        logger.debug("probing among the machine's interfaces: %s", os.strerror(ctypes.get_errno()))
    with open_netlink("the kernel refuses to shape") as ip:
        # Two agents of one machine may probe at once.
        name = f"bf{os.getpid()}"
        index = _add_interface(ip, name)
        try:
            plan = make_plan(_PROFILE, peers=_PEERS, spared_ports=(22,))
            carry_out(ip, index, plan, owner=owner_mark(name))
        finally:
            ip.link("del", index=index)


def _add_interface(ip: IPRoute, name: str) -> int:
    from pyroute2 import NetlinkError

    for kind in _KINDS:
        try:
            ip.link("add", ifname=name, kind=kind)
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            continue
        index = interface_index(name)
        assert index is not None
        return index
    raise EmulationFailed(f"this kernel has no interface to try on (of {', '.join(_KINDS)})")
