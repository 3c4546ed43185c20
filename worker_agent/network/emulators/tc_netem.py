"""Emulates a network with the kernel's own HTB and netem, on the interface towards the peers.

It needs CAP_NET_ADMIN, and a kernel with netem. Only outgoing packets are shaped, so with the same
profile at both ends the round-trip time grows by twice the one-way delay.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farm.configuration.spec import EXACT_EMULATION, LEAST_BANDWIDTH_BYTES_PER_S, NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from farm.sampling.names import LOOPBACK_INTERFACE
from worker_agent.machine.machine import interface_index
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_link import (
    carry_out,
    find_route,
    open_netlink,
    read_settings,
    remove_plans,
    root_queues,
)
from worker_agent.network.emulators.tc_plan import IpAddress, make_plan, owner_mark
from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

if TYPE_CHECKING:
    from pyroute2 import IPRoute

logger = logging.getLogger(__name__)

SSH_PORT = 22
# netem draws from twice of it, in 32 bits of nanoseconds.
_MOST_JITTER_S = 2.0
_CLONE_NEWNET = 0x40000000
_THREAD_STATUS = Path("/proc/thread-self/status")
# Any will do that exists without hardware; minimal kernels lack one or the other.
_PROBED_KINDS = ("dummy", "ifb", "veth")
# All that a profile may ask for at once. The addresses are those of documentation.
_PROBED_PROFILE = NetworkProfile(
    one_way_delay_s=0.02, jitter_s=0.001, packet_loss_ratio=0.01, bandwidth_bytes_per_s=1e6
)
_PROBED_PEERS = (ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("2001:db8::1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Applied:
    index: int  # of the interface
    ways: Mapping[RankAddress, tuple[IpAddress, ...]]
    settings: Mapping[str, str]  # as the kernel had them afterwards


class TcNetem:
    name = "tc_netem"
    capabilities: tuple[str, ...] = (EXACT_EMULATION, name)
    outlives_agent = True

    def __init__(self, site: Site) -> None:
        self._site = site
        self._owner = owner_mark(site.state_dir)
        self._applied: _Applied | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return ()

    def probe(self) -> str | None:
        if self._site.interface == LOOPBACK_INTERFACE:
            return f"{LOOPBACK_INTERFACE} is not shaped, since all agents of a machine share it"
        return find_obstacle()

    def serves(self, profile: NetworkProfile) -> bool:
        """Whether the kernel can emulate it.

        A jitter above the delay would change the mean delay.
        """
        bandwidth = profile.bandwidth_bytes_per_s
        return (
            not profile.beyond(self.name)
            and profile.jitter_s <= min(profile.one_way_delay_s, _MOST_JITTER_S)
            and (bandwidth is None or bandwidth >= LEAST_BANDWIDTH_BYTES_PER_S)
        )

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Shape what leaves for the peers' addresses, but for SSH and the spared ports.

        Raises:
            EmulationFailed: the interface is missing or has somebody else's queue, a peer is not
                reached over it, or the kernel refuses. Nothing stays applied.
        """
        ways = {peer: resolve(peer) for peer in peers}
        plan = make_plan(
            profile,
            peers=[address for found in ways.values() for address in found],
            spared_ports=dict.fromkeys((SSH_PORT, *self._site.spared_ports)),
        )
        name = self._site.interface
        with open_netlink(f"{name} cannot be shaped") as ip:
            index = interface_index(name)
            if index is None:
                raise EmulationFailed(f"AGENT_INTERFACE: there is no interface {name}")
            self._check_free(ip, index)
            for peer, addresses in ways.items():
                self._check_way(ip, index, peer, addresses)
            try:
                carry_out(ip, index, plan, owner=self._owner)
                settings = read_settings(ip, index)
            except BaseException:
                remove_plans(ip, owner=self._owner)
                raise
        self._applied = _Applied(index=index, ways=ways, settings=settings)
        return peers

    def check(self) -> None:
        """Compare the kernel's settings with the plan. Raises EmulationFailed: they differ."""
        applied, name = self._applied, self._site.interface
        if applied is None:
            return
        with open_netlink(f"it is not known whether {name} is shaped") as ip:
            now = read_settings(ip, applied.index)
            for peer, addresses in applied.ways.items():
                self._check_way(ip, applied.index, peer, addresses)
        lost = [
            f"its {what} {'has been changed' if what in now else 'is gone'}"
            for what, setting in applied.settings.items()
            if now.get(what) != setting
        ]
        if lost:
            others = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise EmulationFailed(f"{name} is not shaped as it was: {lost[0]}{others}")

    def clear(self) -> None:
        """Remove the queues of this agent, never another's. Raises EmulationFailed."""
        self._applied = None
        with open_netlink(f"{self._site.interface} may still be shaped") as ip:
            remove_plans(ip, owner=self._owner)

    def _check_free(self, ip: IPRoute, index: int) -> None:
        found = next((queue for queue in root_queues(ip) if queue.index == index), None)
        if found is None or not found.handle:
            return
        name = self._site.interface
        if found.owner is not None:
            raise EmulationFailed(
                f"{name} is shaped by another agent of this machine: give each an AGENT_INTERFACE "
                f"of its own (if none is left, tc qdisc del dev {name} root)"
            )
        raise EmulationFailed(
            f"{name} has the root queue '{found.kind}' {found.handle >> 16:x}:, which this agent "
            f"has not set: remove it (tc qdisc del dev {name} root) or name another AGENT_INTERFACE"
        )

    def _check_way(
        self, ip: IPRoute, index: int, peer: RankAddress, addresses: tuple[IpAddress, ...]
    ) -> None:
        # A name may have an address of a family that this machine does not speak.
        used = {way for address in addresses if (way := find_route(ip, address)) is not None}
        if used != {index}:
            others = [str(ip.get_links(i)[0].get_attr("IFLA_IFNAME")) for i in used - {index}]
            raise EmulationFailed(
                f"rank {peer.rank} at {peer.host} is reached over {', '.join(others) or 'nothing'}"
                f", and AGENT_INTERFACE is {self._site.interface}: what is between them would "
                "not be shaped"
            )


def resolve(peer: RankAddress) -> tuple[IpAddress, ...]:
    """Return all addresses of a rank's host. Raises EmulationFailed where it has none."""
    try:
        found = socket.getaddrinfo(peer.host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise EmulationFailed(
            f"rank {peer.rank}: '{peer.host}' has no address here ({error}); "
            "set its AGENT_ADVERTISE_ADDRESS to one that all agents know"
        ) from None
    return tuple(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found)


def find_obstacle() -> str | None:
    """Return in one line what is missing, and the remedy; None: nothing.

    Everything is tried on a temporary interface that is never up. If permitted (to root), it is in
    a network namespace of its own, so the machine is not touched. An agent with CAP_NET_ADMIN alone
    creates it in the machine's namespace, for some milliseconds.
    """
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
    lines = dict(line.partition(":")[::2] for line in _THREAD_STATUS.read_text().splitlines())
    return bool(int(lines["CapEff"], 16) >> CAP_NET_ADMIN & 1)


def _try_out() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        logger.debug("probing among the machine's interfaces: %s", os.strerror(ctypes.get_errno()))
    with open_netlink("the kernel refuses to shape") as ip:
        # Two agents of one machine may probe at once.
        name = f"bf{os.getpid()}"
        index = _add_interface(ip, name)
        try:
            plan = make_plan(_PROBED_PROFILE, peers=_PROBED_PEERS, spared_ports=(SSH_PORT,))
            carry_out(ip, index, plan, owner=owner_mark(name))
        finally:
            ip.link("del", index=index)


def _add_interface(ip: IPRoute, name: str) -> int:
    from pyroute2 import NetlinkError

    for kind in _PROBED_KINDS:
        try:
            ip.link("add", ifname=name, kind=kind)
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            continue
        index = interface_index(name)
        assert index is not None
        return index
    raise EmulationFailed(f"this kernel has no interface to try on (of {', '.join(_PROBED_KINDS)})")
