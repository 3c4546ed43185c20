"""An agent that takes no rank until something is mended is shown with what that is."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.messages.agents import AgentState
from farm.store.engine import writing
from tests.commands.farm_command import FarmCommand
from tests.factories import NOW, add_agent, agent_facts
from tests.web.web_client import client_of

TROUBLE = "a network that an earlier rank asked for is still applied: eth0 may still be shaped"

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def troubled(engine: sa.Engine) -> None:
    """One agent in trouble, one that was and is gone, and a quiet one."""
    facts, now = agent_facts(trouble=TROUBLE), dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        add_agent(session, "stuck", facts=facts, state=AgentState.BUSY, heartbeat_at=now)
        add_agent(session, "gone", facts=facts, state=AgentState.BUSY, heartbeat_at=NOW)
        add_agent(session, "quiet", heartbeat_at=now)


@pytest.mark.usefixtures("troubled")
def test_the_command_line_says_so_below(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = FarmCommand(engine, tmp_path / "home", monkeypatch)
    for command in ("agents", "status"):
        lines = farm.text(command).splitlines()
        assert [line for line in lines if TROUBLE in line] == [f"stuck takes no rank: {TROUBLE}"]


@pytest.mark.usefixtures("troubled")
def test_the_dashboard_and_the_api_say_so(engine: sa.Engine) -> None:
    client = client_of(engine)
    page = client.get("/").get_data(as_text=True)
    assert page.count(TROUBLE) == 1
    assert "cleaning up" in page
    items = client.get("/api/v1/agents").get_json()["items"]
    found = {item["id"]: (item["status"], item["facts"]["trouble"]) for item in items}
    assert found["stuck"] == ("cleaning up", TROUBLE)
    assert found["quiet"] == ("idle", None)
