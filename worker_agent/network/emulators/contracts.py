"""The interface of network emulators, and the facts that they receive about the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What an emulator may know of the machine that it works on.

    It is written down before anything is applied, so that another process can undo it.
    """

    state_dir: str
    interface: str
    cpus: tuple[int, ...]
    spared_ports: tuple[int, ...]  # TCP ports whose traffic is never shaped, such as the broker's


class NetworkEmulator(Protocol):
    """Puts a network profile between this rank and its peers, and takes it away again.

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
        """Whether it can do what the profile asks."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of its own that work for this rank, on the rank's cores."""
        ...

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Shape what passes between this rank and `peers`, and nothing else.

        Return the peers as this rank must reach them from now on: the addresses they gave, or
        others through which the shaped way leads.

        Raises:
            EmulationFailed: nothing, or not all of it, was applied.
        """
        ...

    def check(self) -> None:
        """See whether what this object has applied is still there, as it was applied.

        Others may have taken it away: a person, a service that sets the interface up again.

        Raises:
            EmulationFailed: it is not, or nobody can say.
        """
        ...

    def clear(self) -> None:
        """Undo whatever was applied, by this object or by another process; twice is harmless.

        Raises:
            EmulationFailed: something may still be shaped.
        """
        ...
