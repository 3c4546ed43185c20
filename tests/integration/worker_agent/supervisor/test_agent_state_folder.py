"""An agent whose state folder vanishes while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.messages.agents import AgentState, Heartbeat
from farm.messages.commands import StopAttempt
from farm.messages.reports import RankEnded, RankStarted
from tests.fakes.server import wait_until
from tests.machine.agents import AgentFarm, AgentProcess


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def last_beat(farm: AgentFarm, agent: AgentProcess) -> Heartbeat:
    return farm.server.beats[agent.agent_id][-1]


def says_trouble(farm: AgentFarm, agent: AgentProcess) -> None:
    def is_in_trouble() -> bool:
        beat = last_beat(farm, agent)
        return beat.state is AgentState.BUSY and "is gone" in (beat.facts.trouble or "")

    wait_until(is_in_trouble, "the agent says that its folder is gone")


def is_well_again(farm: AgentFarm, agent: AgentProcess, *, token: int) -> None:
    def is_well() -> bool:
        beat = last_beat(farm, agent)
        is_free = beat.state is AgentState.IDLE and beat.serving_token is None
        if is_free and beat.facts.trouble is None and beat.highest_token < token:
            farm.server.send(agent.agent_id, StopAttempt(token=token, reason="it is over"))
        return is_free and beat.facts.trouble is None and beat.highest_token >= token

    wait_until(is_well, "the agent is well and clean")


def test_a_folder_that_is_back_is_used_again_and_nothing_is_lost(
    farm: AgentFarm, tmp_path: Path
) -> None:
    agent = farm.agent("steps_s:0.1")
    gang = farm.gang(7, agent, steps=10_000)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    agent.state_dir.rename(tmp_path / "aside")
    says_trouble(farm, agent)
    wait_until(lambda: last_beat(farm, agent).serving_token is None, "its rank is ended")
    size = agent.log.stat().st_size
    beats = len(farm.server.beats[agent.agent_id])
    for _ in range(20):
        farm.server.send(agent.agent_id, StopAttempt(token=8, reason="it is over"))
    wait_until(lambda: len(farm.server.beats[agent.agent_id]) > beats + 10, "it goes on to beat")
    assert agent.log.stat().st_size - size < 20_000
    (tmp_path / "aside").rename(agent.state_dir)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    wait_until(
        lambda: not (agent.state_dir / "served_rank").exists(),
        "no later life reports the rank as lost",
        timeout_s=60,
    )
    is_well_again(farm, agent, token=8)
    assert len(farm.server.generations(agent.agent_id)) == 1


def test_a_new_folder_in_its_place_begins_another_spool(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1")
    gang = farm.gang(7, agent, steps=3)
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    shutil.rmtree(agent.state_dir)
    says_trouble(farm, agent)
    agent.state_dir.mkdir()
    is_well_again(farm, agent, token=7)
    assert (agent.state_dir / "highest_token").read_text() == "7\n"
    gang = farm.gang(9, agent, steps=3)
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    assert len(farm.server.generations(agent.agent_id)) == 2
