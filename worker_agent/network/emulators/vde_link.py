"""Emulates a network on a host of `farm lab`: its virtual wire delays, loses and limits packets.

A wire of `farm lab` has the name of its host's interface. Its socket can be found from anywhere on
the machine, and a later lab reuses the names of a dead one. So an agent also checks that the
interface is on its own host. The lab's own settings belong to the other direction and are kept.
"""

from __future__ import annotations

import socket

from farm.configuration.spec import EXACT_EMULATION, NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec
from farm.lab.wirefilter import WireDirection, Wirefilter, check_profile
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site


class VdeLink:
    name = "vde_link"
    capabilities: tuple[str, ...] = (EXACT_EMULATION, name)
    outlives_agent = True

    def __init__(self, site: Site) -> None:
        self._wire = Wirefilter.of_interface(site.interface)
        self._interface = site.interface
        self._applied: NetworkProfile | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return ()

    @property
    def _is_own(self) -> bool:
        here = (name for _, name in socket.if_nameindex())
        return self._interface in here and self._wire.is_there

    def probe(self) -> str | None:
        if self._is_own:
            return None
        return f"{self._interface} is not a link of a lab (see farm lab)"

    def serves(self, profile: NetworkProfile) -> bool:
        try:
            check_profile(profile)
        except InvalidSpec:
            return False
        return True

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Shape the whole wire: only the gang's peers are at its other end."""
        if not self._is_own:
            raise EmulationFailed(
                f"interface {self._interface} is not a link of a lab (AGENT_INTERFACE)"
            )
        self._wire.apply(profile, direction=WireDirection.FROM_HOST)
        self._applied = profile
        return peers

    def check(self) -> None:
        """Compare the wire's settings with the profile. Raises EmulationFailed: they differ."""
        if self._applied is not None:
            self._wire.check(self._applied, direction=WireDirection.FROM_HOST)

    def clear(self) -> None:
        self._applied = None
        # With the lab the wire is gone, and what it did to packets too.
        if self._is_own:
            self._wire.apply(NetworkProfile(), direction=WireDirection.FROM_HOST)
