"""What the agent says of itself with every heartbeat: whether it takes a rank now, or why not."""

from __future__ import annotations

import dataclasses

from farm.core.agents import AgentFacts, AgentState
from worker_agent.departure import Departure
from worker_agent.journal import Journal
from worker_agent.remains import Remains


class Condition:
    """Reads what others own."""

    def __init__(
        self, facts: AgentFacts, *, departure: Departure, remains: Remains, journal: Journal
    ) -> None:
        self._facts = facts
        self._departure = departure
        self._remains = remains
        self._journal = journal

    def facts(self) -> AgentFacts:
        return dataclasses.replace(self._facts, trouble=self._remains.trouble)

    def state(self, *, is_serving: bool) -> AgentState:
        if self._departure.has_begun:
            return AgentState.LEAVING
        if is_serving or self._remains.trouble is not None:
            return AgentState.BUSY
        if self._journal.is_full:
            return AgentState.SPOOL_FULL
        return AgentState.IDLE

    def refusal(self, *, is_serving: bool) -> str:
        """Say why a rank is not taken, where the state is not to take any."""
        state = self.state(is_serving=is_serving)
        if state is AgentState.BUSY and not is_serving and self._remains.trouble is not None:
            return self._remains.trouble
        return f"agent is {state.value}"
