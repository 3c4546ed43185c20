"""Real agents whose fake trainers are forked from a template: nothing is lost, and nothing left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from farm.messages.agents import AgentState
from farm.messages.commands import StopAttempt
from farm.messages.reports import Prepared, RankEnded, RankStarted
from farm.messages.trainer_lines import FailureKind
from tests.fakes.server import FakeGang, wait_until
from tests.machine.agents import AgentFarm, AgentProcess
from worker_agent.trainer_process.orphans import find_marked


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def warm(farm: AgentFarm, **settings: str) -> AgentProcess:
    """Start an agent and wait until its template is ready, and so has been measured."""
    agent = farm.agent(template="", **settings)
    wait_until(
        lambda: farm.beat(agent).template_bytes,  # type: ignore[union-attr] # it has beaten
        "a beat with the template's memory",
    )
    return agent


def started(farm: AgentFarm, token: int, *agents: AgentProcess, behaviour: str) -> FakeGang:
    gang = farm.gang(token, *agents, labels={"fake_trainer": behaviour})
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    return gang


def is_warm(pid: int) -> bool:
    """A fork says of itself what the process that it came from says."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert (b"/template.py" in command) != (b"/trainer.py" in command)
    return b"/template.py" in command


def pipes(pid: int) -> set[str]:
    links = (entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir())
    return {str(link) for link in links if str(link).startswith(("pipe:", "socket:"))}


def test_a_warm_trainer_is_its_agents_child_and_reports_as_a_cold_one(farm: AgentFarm) -> None:
    agent = warm(farm)
    gang = started(farm, 1, agent, behaviour="steps_s:0.05")
    [trainer] = agent.trainers()
    process = psutil.Process(trainer)
    assert is_warm(trainer)
    assert agent.process is not None
    assert process.ppid() == agent.process.pid
    assert os.getsid(trainer) == trainer
    assert process.cwd() == str(agent.state_dir)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is None
    kinds = [report.kind for report in farm.server.reports(agent.agent_id, 1)]
    assert [kind for kind in kinds if kind not in ("samples", "steps", "log")] == [
        *("prepared", "peers", "shaped", "started", "ended")
    ]


def shared_dirty_bytes(pid: int) -> int:
    """What a process shares with others and one of them has written: a fork's, until it copies."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shared_Dirty:"))


def test_a_warm_trainer_shares_no_memory_by_the_time_it_trains(farm: AgentFarm) -> None:
    agent = warm(farm)
    started(farm, 1, agent, behaviour="steps_s:30")
    [trainer] = agent.trainers()
    assert shared_dirty_bytes(trainer) < 1 << 20


def test_every_rank_is_forked_from_one_template_and_inherits_nothing_of_the_last(
    farm: AgentFarm,
) -> None:
    agent = warm(farm)
    template = agent.template()
    assert template is not None
    own = pipes(template)
    seen: list[set[str]] = []
    for token in (1, 2):
        started(farm, token, agent, behaviour="hang")
        [trainer] = agent.trainers()
        assert pipes(template) == own
        seen.append(pipes(trainer))
        farm.server.send(agent.agent_id, StopAttempt(token=token, reason="seen enough"))
        farm.await_state(agent, AgentState.IDLE)
        assert agent.trainers() == []
    assert agent.template() == template
    assert not seen[0] & seen[1]
    assert not (seen[0] | seen[1]) & own
    # Standard input, output and error, of which the trainer itself may keep a copy.
    assert [len(each) for each in seen] == [3, 3]


def test_a_killed_template_is_replaced_only_when_nothing_is_served(farm: AgentFarm) -> None:
    agent = warm(farm)
    first = agent.template()
    assert first is not None
    gang = started(farm, 1, agent, behaviour="steps_s:0.3")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: agent.template() != first, "the template's end")

    def next_template() -> int | None:
        template = agent.template()
        assert template is None or not (agent.state_dir / "served_rank").exists()
        return template

    assert wait_until(next_template, "the next template") != first
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is None  # a trainer does not end with the template it came from


def test_a_rank_of_another_framework_starts_cold_and_leaves_the_template(farm: AgentFarm) -> None:
    agent = warm(farm)
    template = agent.template()
    gang = farm.gang(1, agent, strategy="torch_ddp", labels={"fake_trainer": "hang"}, world_size=1)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    [trainer] = agent.trainers()
    assert not is_warm(trainer)
    farm.server.send(agent.agent_id, StopAttempt(token=1, reason="seen enough"))
    farm.await_state(agent, AgentState.IDLE)
    assert find_marked(agent.state_dir) == [template]


def test_without_its_template_a_rank_starts_cold_in_the_same_attempt(farm: AgentFarm) -> None:
    agent = farm.agent(template="dies")
    gang = started(farm, 1, agent, behaviour="steps_s:0.05")
    [trainer] = agent.trainers()
    assert not is_warm(trainer)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is None


def test_a_rank_stopped_while_the_template_imports_is_never_forked(farm: AgentFarm) -> None:
    agent = farm.agent(template="never_ready")
    template = wait_until(agent.template, "a template")
    gang = farm.gang(1, agent)
    gang.start()
    farm.await_state(agent, AgentState.BUSY)
    farm.server.send(agent.agent_id, StopAttempt(token=1, reason="cancelled"))
    farm.await_state(agent, AgentState.IDLE)
    assert not psutil.pid_exists(template)
    assert agent.trainers() == []
    assert farm.server.bodies(agent.agent_id, Prepared, 1) == []


def test_an_agent_told_to_leave_while_its_template_imports_leaves_nothing(farm: AgentFarm) -> None:
    agent = farm.agent(template="never_ready")
    wait_until(agent.template, "a template")
    gang = farm.gang(1, agent)
    gang.start()
    farm.await_state(agent, AgentState.BUSY)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert find_marked(agent.state_dir) == []


def test_a_warm_trainer_killed_from_outside_is_reported_with_its_signal(farm: AgentFarm) -> None:
    agent = warm(farm)
    gang = started(farm, 1, agent, behaviour="hang")
    [trainer] = agent.trainers()
    os.kill(trainer, signal.SIGKILL)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.KILLED
    assert "SIGKILL" in ended.failure.message
    assert "the fake trainer begins" in ended.log_tail


def test_a_warm_trainers_exit_status_is_reported(farm: AgentFarm) -> None:
    agent = warm(farm)
    gang = farm.gang(1, agent, labels={"fake_trainer": "exit:5"})
    gang.lead_to_go()
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert "exit status 5" in ended.failure.message


def test_what_warm_trainers_leave_behind_is_killed_and_reaped(farm: AgentFarm) -> None:
    agent = warm(farm)
    started(farm, 1, agent, behaviour="hang,child")
    wait_until(lambda: len(agent.trainers()) == 2, "trainer and child")
    template = agent.template()
    farm.server.send(agent.agent_id, StopAttempt(token=1, reason="cancelled"))
    farm.await_state(agent, AgentState.IDLE)
    assert find_marked(agent.state_dir) == [template]
    assert agent.process is not None
    itself = psutil.Process(agent.process.pid)
    expected = {template, agent.broker_client().pid}
    wait_until(lambda: {child.pid for child in itself.children()} == expected, "no zombie")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_takes_its_template_and_its_warm_trainers_along(
    farm: AgentFarm, number: signal.Signals
) -> None:
    agent = warm(farm)
    started(farm, 1, agent, behaviour="hang")
    agent.signal(number)
    agent.wait()
    wait_until(lambda: not find_marked(agent.state_dir), "the end of template and trainer")


def test_each_agent_of_a_machine_forks_from_a_template_of_its_own(farm: AgentFarm) -> None:
    first, second = warm(farm), warm(farm)
    gang = started(farm, 1, first, second, behaviour="steps_s:0.05")
    assert first.template() != second.template()
    for agent in (first, second):
        [trainer] = agent.trainers()
        assert agent.process is not None
        assert psutil.Process(trainer).ppid() == agent.process.pid
    assert [ended.failure for ended in gang.wait_for(RankEnded)] == [None, None]
