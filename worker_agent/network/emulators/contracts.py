"""The interface of network emulators, and the facts that they receive about the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The facts about the machine that an emulator receives.

    They are recorded on disk before anything is applied, so another process can undo it.
    """

    state_dir: str
    interface: str
    cpus: tuple[int, ...]
    spared_ports: tuple[int, ...]  # TCP ports whose traffic is never shaped, such as the broker's


class NetworkEmulator(Protocol):
    """Applies a network profile between this rank and its peers, and removes it again.

    It is made from a `Site` and serves one rank.
    """

    name: str
    # What the agent may claim when `probe` finds nothing missing: the emulator's own name, and
    # EXACT_EMULATION if it does to packets what a real network does.
    capabilities: tuple[str, ...]
    outlives_agent: bool  # whether what is applied stays when the agent's process is gone

    def probe(self) -> str | None:
        """Return what this machine lacks to use it, or None."""
        ...

    def serves(self, profile: NetworkProfile) -> bool:
        """Whether it can emulate the profile."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Its own processes that work for this rank, on the rank's cores."""
        ...

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Shape the traffic between this rank and `peers`, and nothing else.

        Return the addresses at which this rank must reach the peers from now on: their own, or
        those of a proxy.

        Raises:
            EmulationFailed: it was not applied, or only partly.
        """
        ...

    def check(self) -> None:
        """Check that the profile is still applied, unchanged.

        A person, or a service that sets up the interface again, may have removed it.

        Raises:
            EmulationFailed: it is not, or this cannot be determined.
        """
        ...

    def clear(self) -> None:
        """Undo the profile, whether this object or another process has applied it. Idempotent.

        Raises:
            EmulationFailed: something may still be shaped.
        """
        ...
