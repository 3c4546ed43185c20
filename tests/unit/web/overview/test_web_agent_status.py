"""The one word for how an agent is."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from farm.messages.agents import AgentState
from farm.store.tables import AgentRow
from web.overview.agent_status import AgentCard, AgentStatus, agent_status

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({}, "idle"),
        ({"is_drained": True}, "drained"),
        ({"attempt_id": 7}, "busy"),
        ({"attempt_id": 7, "is_drained": True}, "busy"),
        ({"unclean_token": 7}, "cleaning up"),
        ({"state": AgentState.BUSY}, "cleaning up"),
        ({"state": AgentState.SPOOL_FULL, "attempt_id": 7}, "spool full"),
        ({"state": AgentState.LEAVING}, "leaving"),
        ({"heartbeat_at": NOW - dt.timedelta(seconds=21)}, "lost"),
        ({"heartbeat_at": NOW - dt.timedelta(seconds=21), "attempt_id": 7}, "lost"),
        ({"heartbeat_at": None}, "lost"),
    ],
)
def test_the_most_important_thing_is_said(columns: dict[str, Any], status: str) -> None:
    fields: dict[str, Any] = {
        "id": "a1",
        "state": AgentState.IDLE,
        "heartbeat_at": NOW - dt.timedelta(seconds=20),
        "is_drained": False,
        **columns,
    }
    assert agent_status(AgentRow(**fields), now=NOW, lease_s=20.0).value == status


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
