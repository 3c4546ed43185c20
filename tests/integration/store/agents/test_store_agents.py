from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.spec import TENSORFLOW
from farm.errors import NotFound
from farm.gang.snapshots import LiveAgent
from farm.messages.agents import AgentState
from farm.store.agents.agents import (
    is_any_idle,
    list_agents,
    live_agent_count,
    live_agents,
    set_drained,
)
from farm.store.engine import reading, writing
from farm.store.tables import AgentRow
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, seconds

LIVE_WITHIN_S = 20.0


def _live(engine: sa.Engine, **columns: Any) -> list[LiveAgent]:
    with writing(engine) as session:
        add_agent(session, "a1", **columns)
        agents = live_agents(session, now=NOW, live_within_s=LIVE_WITHIN_S)
        assert is_any_idle(session, now=NOW, live_within_s=LIVE_WITHIN_S) == _has_idle(agents)
        return agents


def _has_idle(agents: list[LiveAgent]) -> bool:
    return any(agent.is_idle for agent in agents)


def test_a_fresh_agent_is_idle_and_described_by_its_facts(engine: sa.Engine) -> None:
    facts = agent_facts(cpus=(2, 3), labels={"zone": "a"}, capabilities=("netem", TENSORFLOW))
    [agent] = _live(engine, facts=facts)
    assert agent == LiveAgent(
        agent_id="a1",
        machine_id="machine-1",
        cpus=frozenset({2, 3}),
        capabilities=frozenset({"netem", TENSORFLOW}),
        labels=frozenset({("zone", "a")}),
        fingerprint=facts.hardware.fingerprint,
        memory_bytes=facts.hardware.memory_bytes,
        framework_version="2.21.0",
        is_idle=True,
        is_occupying=False,
    )


@pytest.mark.parametrize(
    ("version", "capabilities", "expected"),
    [("2.21.0", (TENSORFLOW,), True), (None, (), False), (None, (TENSORFLOW,), True)],
)
def test_an_agent_has_tensorflow_if_it_says_so_whether_its_version_is_known_or_not(
    engine: sa.Engine, version: str | None, capabilities: tuple[str, ...], expected: bool
) -> None:
    hardware = dataclasses.replace(agent_facts().hardware, tensorflow_version=version)
    facts = agent_facts(hardware=hardware, capabilities=capabilities)
    [agent] = _live(engine, facts=facts)
    assert agent.has_tensorflow is expected


@pytest.mark.parametrize(
    "columns",
    [
        {"is_drained": True},
        {"state": AgentState.BUSY},
        {"state": AgentState.SPOOL_FULL},
        {"state": AgentState.LEAVING},
    ],
)
def test_an_agent_that_takes_no_rank_is_not_idle(
    engine: sa.Engine, columns: dict[str, Any]
) -> None:
    [agent] = _live(engine, **columns)
    assert (agent.is_idle, agent.is_occupying) == (False, False)


def test_an_unclean_agent_occupies_its_cores(engine: sa.Engine) -> None:
    [agent] = _live(engine, unclean_token=5)
    assert (agent.is_idle, agent.is_occupying) == (False, True)


@pytest.mark.parametrize("heartbeat_at", [None, NOW - seconds(LIVE_WITHIN_S + 1)])
@pytest.mark.parametrize("unclean_token", [None, 5])
def test_a_silent_agent_is_not_live(
    engine: sa.Engine, heartbeat_at: Any, unclean_token: int | None
) -> None:
    assert _live(engine, heartbeat_at=heartbeat_at, unclean_token=unclean_token) == []


def test_a_silent_agent_occupies_its_cores_until_its_lease_is_taken(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=NOW - seconds(LIVE_WITHIN_S + 1))
        add_attempt(session, add_job(session), ["a1"])
        [agent] = live_agents(session, now=NOW, live_within_s=LIVE_WITHIN_S)
        assert not is_any_idle(session, now=NOW, live_within_s=LIVE_WITHIN_S)
    assert (agent.is_idle, agent.is_occupying) == (False, True)


def test_live_agents_are_counted_and_those_known_are_not_read_again(engine: sa.Engine) -> None:
    silent = NOW - seconds(LIVE_WITHIN_S + 1)
    with writing(engine) as session:
        for agent_id in ("c", "a"):
            add_agent(session, agent_id)
        for agent_id in ("d", "b", "e"):
            add_agent(session, agent_id, heartbeat_at=silent)
        add_attempt(session, add_job(session), ["b"])
    with reading(engine) as session:
        every = live_agents(session, now=NOW, live_within_s=LIVE_WITHIN_S)
        known = [session.get_one(AgentRow, agent_id) for agent_id in ("d", "b", "c")]
        again = live_agents(session, now=NOW, live_within_s=LIVE_WITHIN_S, known=known)
        count = live_agent_count(session, now=NOW, live_within_s=LIVE_WITHIN_S)
    assert [agent.agent_id for agent in every] == ["a", "b", "c"]
    assert again == every
    assert count == 3


def test_agents_are_listed_in_pages(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for agent_id in ("c", "a", "b"):
            add_agent(session, agent_id)
        page = list_agents(session, limit=2)
        rest = list_agents(session, after_id=page[-1].id, limit=2)
    assert [agent.id for agent in [*page, *rest]] == ["a", "b", "c"]


def test_draining_is_kept_until_it_is_taken_back(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        set_drained(session, "a1", is_drained=True)
    with reading(engine) as session:
        assert session.get_one(AgentRow, "a1").is_drained
    with writing(engine) as session:
        set_drained(session, "a1", is_drained=False)
    with reading(engine) as session:
        assert not session.get_one(AgentRow, "a1").is_drained


def test_an_unknown_agent_cannot_be_drained(engine: sa.Engine) -> None:
    with writing(engine) as session, pytest.raises(NotFound, match="'a9' does not exist"):
        set_drained(session, "a9", is_drained=True)
