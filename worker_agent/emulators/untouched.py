"""The network as it is."""

from __future__ import annotations

from farm.core.spec import NetworkProfile


class Untouched:
    name = "none"
    capability: str | None = None

    def probe(self) -> str | None:
        return None

    def serves(self, profile: NetworkProfile) -> bool:
        return profile.is_untouched

    def apply(self, profile: NetworkProfile, *, interface: str, peers: tuple[str, ...]) -> None:
        """Leave the network alone."""

    def clear(self, *, interface: str) -> None:
        """Nothing was touched."""
