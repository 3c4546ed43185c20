"""A real agent that is ordered to run a script which it has to fetch first."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.configuration.bundle import ScriptBundle
from farm.configuration.scripts import RUNS_BUNDLES
from farm.messages.agents import AgentState
from farm.messages.commands import BundlePiece, StopAttempt
from farm.messages.reports import Prepared, RankEnded
from farm.messages.trainer_lines import FailureKind
from tests.fakes.server import FakeGang, wait_until
from tests.machine.agents import AgentFarm, AgentProcess

BUNDLE = ScriptBundle({"train.py": b"print(1)"})
DIGITS = BUNDLE.sha256[:12]
PIECES = [BUNDLE.archive[:50], BUNDLE.archive[50:]]
SUBMITTED = {"AGENT_SCRIPTS": "submitted", "BENCHFARM_EMBEDDED": "test"}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def begin(farm: AgentFarm, token: int, agent: AgentProcess) -> FakeGang:
    gang = farm.gang(token, agent, model=f"bundle:train.py@{DIGITS}", dataset="script")
    gang.start()
    return gang


def await_wish(farm: AgentFarm, agent: AgentProcess, number: int | None) -> None:
    def says_so() -> bool:
        beat = farm.beat(agent)
        wanted = beat.wanted if beat is not None else None
        return (None if wanted is None else wanted.number) == number

    wait_until(says_so, f"the agent wants piece {number}")


def send(farm: AgentFarm, agent: AgentProcess, number: int, *, content: bytes) -> None:
    piece = BundlePiece(
        bundle=DIGITS,
        number=number,
        sha256=BUNDLE.sha256,
        piece_count=len(PIECES),
        content=base64.b64encode(content).decode(),
    )
    farm.server.send(agent.agent_id, piece)


def test_a_rank_begins_once_its_bundle_is_here_and_the_next_at_once(farm: AgentFarm) -> None:
    agent = farm.agent(**SUBMITTED)
    assert RUNS_BUNDLES in farm.beat(agent).facts.capabilities  # type: ignore[union-attr]
    gang = begin(farm, 7, agent)
    for number, content in enumerate(PIECES):
        await_wish(farm, agent, number)
        send(farm, agent, number, content=content)
        gang.start()  # the server says it again meanwhile
    gang.wait_for(Prepared)
    await_wish(farm, agent, None)
    gang.lead_to_go()
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is None
    farm.await_state(agent, AgentState.IDLE)
    agent.stop()
    agent.start()
    farm.await_state(agent, AgentState.IDLE)
    begin(farm, 8, agent).wait_for(Prepared)


def test_what_has_another_content_is_refused_with_the_reason(farm: AgentFarm) -> None:
    agent = farm.agent(**SUBMITTED)
    gang = begin(farm, 7, agent)
    for number, content in enumerate((PIECES[0], b"something else")):
        await_wish(farm, agent, number)
        send(farm, agent, number, content=content)
    [refused] = gang.wait_for(RankEnded)
    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.REFUSED
    assert "another sha256" in refused.failure.message
    await_wish(farm, agent, None)


def test_an_attempt_that_is_stopped_meanwhile_is_wanted_no_more(farm: AgentFarm) -> None:
    agent = farm.agent(**SUBMITTED)
    begin(farm, 7, agent)
    await_wish(farm, agent, 0)
    farm.server.send(agent.agent_id, StopAttempt(token=7, reason="cancelled"))
    await_wish(farm, agent, None)
    send(farm, agent, 0, content=PIECES[0])
    begin(farm, 8, agent)
    await_wish(farm, agent, 0)
    assert farm.server.bodies(agent.agent_id, Prepared) == []


def test_an_agent_that_runs_no_bundles_fetches_none(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1")
    assert RUNS_BUNDLES not in farm.beat(agent).facts.capabilities  # type: ignore[union-attr]
    begin(farm, 7, agent).wait_for(Prepared)  # by a trainer that looks at no script
    assert all(beat.wanted is None for beat in farm.server.beats[agent.agent_id])


@pytest.mark.parametrize(
    ("allowed", "message"), [("", "AGENT_SCRIPT_VARIABLES"), ("MY_MODE", None)]
)
def test_a_variable_that_the_operator_does_not_allow_is_refused(
    allowed: str, message: str | None, farm: AgentFarm, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir(mode=0o700)
    (tmp_path / "scripts/train.py").write_text("print(1)")
    own = {"AGENT_SCRIPT_VARIABLES": allowed} if allowed else {}
    agent = farm.agent(AGENT_SCRIPT_DIR=str(tmp_path / "scripts"), **own)
    model = "script:train.py MY_MODE=1 OMP_NUM_THREADS=1 --"
    gang = farm.gang(7, agent, model=model, dataset="script")
    gang.start()
    if message is None:
        gang.wait_for(Prepared)
        return
    [refused] = gang.wait_for(RankEnded)
    assert refused.failure is not None
    assert message in refused.failure.message
    assert "MY_MODE" in refused.failure.message
