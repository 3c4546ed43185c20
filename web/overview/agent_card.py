"""Describes an agent for pages: its status and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.messages.agents import CLOCK_TOLERANCE_S
from farm.store.agents.agent_status import AgentStatus
from farm.store.agents.agents import frameworks_text
from farm.store.dashboard import LeasedRank
from farm.store.tables import AgentRow
from farm.text.display import MISSING, byte_count, duration

_MINUS = "\u2212"
_BADGES = {
    AgentStatus.IDLE: "good",
    AgentStatus.BUSY: "busy",
    AgentStatus.CLEANING_UP: "busy",
    AgentStatus.SPOOL_FULL: "bad",
    AgentStatus.LOST: "bad",
}
_GONE = frozenset({AgentStatus.STOPPED, AgentStatus.LOST, AgentStatus.REMOVED})


@dataclass(frozen=True, slots=True)
class AgentCard:
    """An agent as pages show it. `served`: what it is leased for, None for nothing."""

    agent: AgentRow
    status: AgentStatus
    served: LeasedRank | None

    @property
    def is_live(self) -> bool:
        """Whether its heartbeats arrive."""
        return self.status not in _GONE

    @property
    def badge(self) -> str:
        """The class that colours its status; empty for the plain ones."""
        return _BADGES.get(self.status, "")

    @property
    def trouble(self) -> str | None:
        """Why it takes no rank until somebody mends that; None where it is gone anyway."""
        found: str | None = self.agent.facts.get("trouble")
        return found if self.is_live else None

    @property
    def capabilities(self) -> Sequence[str]:
        """What it can do beyond training, as it says itself."""
        found: Sequence[str] = self.agent.facts["capabilities"]
        return found

    @property
    def frameworks(self) -> str:
        """What it trains with."""
        return frameworks_text(self.agent.facts) or "none"

    @property
    def hardware(self) -> str:
        """What its machine is."""
        known = self.agent.facts["hardware"]
        cores = f"{known['core_count']} {'core' if known['core_count'] == 1 else 'cores'}"
        memory = byte_count(known["memory_bytes"])
        return ", ".join(
            [f"{cores} of {known['cpu_model']}", memory, *known.get("accelerators", ())]
        )

    @property
    def labels(self) -> str:
        """What its owner says of it."""
        labels = self.agent.facts["labels"]
        return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))

    @property
    def clock(self) -> str:
        """How far its clock is ahead of the server's, or behind it."""
        return clock_text(self.agent.clock_offset_s)

    @property
    def is_clock_off(self) -> bool:
        """Whether that is so far that its log cannot be read beside the server's."""
        return abs(self.agent.clock_offset_s or 0.0) > CLOCK_TOLERANCE_S


def clock_text(offset_s: float | None) -> str:
    """Write how far a clock is ahead, or, with a minus, behind."""
    if offset_s is None:
        return MISSING
    sign = "+" if offset_s > 0 else _MINUS if offset_s < 0 else ""
    return f"{sign}{duration(abs(offset_s))}"
