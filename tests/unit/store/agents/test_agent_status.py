"""The one word for what an agent does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from farm.messages.agents import AgentState
from farm.store.agents.agent_status import agent_status
from farm.store.tables import AgentRow

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
        ({"state": AgentState.LEAVING, "heartbeat_at": None}, "stopped"),
        ({"is_removed": True, "is_drained": True}, "removed"),
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
