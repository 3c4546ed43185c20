"""What pages say of an agent."""

from __future__ import annotations

import pytest

from farm.store.agents.agent_status import AgentStatus
from farm.store.tables import AgentRow
from web.overview.agent_card import AgentCard


@pytest.mark.parametrize(
    ("offset_s", "text", "is_off"),
    [
        (None, "–", False),  # noqa: RUF001 # an en dash, as typeset tables have it
        (0.0, "0 s", False),
        (0.0123, "+12.3 ms", False),
        (-0.0123, "\N{MINUS SIGN}12.3 ms", False),
        (-61.0, "\N{MINUS SIGN}1 min 1 s", True),
        (1.5, "+1.50 s", True),
    ],
)
def test_a_clock_is_ahead_or_behind(offset_s: float | None, text: str, is_off: bool) -> None:
    card = AgentCard(AgentRow(id="a1", clock_offset_s=offset_s), AgentStatus.IDLE, None)
    assert (card.clock, card.is_clock_off) == (text, is_off)


def test_the_trouble_of_an_agent_that_is_gone_is_nobodys() -> None:
    agent = AgentRow(id="a1", facts={"trouble": "its disk is full"})
    assert AgentCard(agent, AgentStatus.CLEANING_UP, None).trouble == "its disk is full"
    assert AgentCard(agent, AgentStatus.LOST, None).trouble is None
