"""The emulator that changes nothing: the network as it is."""

from __future__ import annotations

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site


class Untouched:
    name = "none"
    capabilities: tuple[str, ...] = ()
    outlives_agent = False

    def __init__(self, site: Site) -> None:
        """Nothing of the machine matters to it."""

    @property
    def pids(self) -> tuple[int, ...]:
        return ()

    def probe(self) -> str | None:
        return None

    def serves(self, profile: NetworkProfile) -> bool:
        return profile.is_untouched

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Leave the network alone."""
        return peers

    def check(self) -> None:
        """Nothing was applied."""

    def clear(self) -> None:
        """Nothing was touched."""
