"""What a network emulator must offer."""

from __future__ import annotations

from typing import Protocol

from farm.core.spec import NetworkProfile


class NetworkEmulator(Protocol):
    """Puts a network profile between this rank and its peers, and takes it away again."""

    name: str
    capability: str | None  # what the agent may claim when `probe` finds nothing missing

    def probe(self) -> str | None:
        """Return what this machine lacks to use it, or None."""
        ...

    def serves(self, profile: NetworkProfile) -> bool:
        """Whether it can do what the profile asks."""
        ...

    def apply(self, profile: NetworkProfile, *, interface: str, peers: tuple[str, ...]) -> None:
        """Shape what leaves for `peers`, host names or addresses, and nothing else.

        Raises:
            EmulationFailed: nothing, or not all of it, was applied.
        """
        ...

    def clear(self, *, interface: str) -> None:
        """Undo whatever was applied, by this process or an earlier one; twice is harmless.

        Raises:
            EmulationFailed: something may still be shaped.
        """
        ...
