"""Whatever is killed, frozen or emptied: no report is lost and no process is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from farm.messages.agents import AgentState
from farm.messages.reports import RankEnded, RankStarted, Samples, StepTimes
from farm.messages.trainer_lines import FailureKind, StepKind
from tests.fakes.server import wait_until
from tests.machine.agents import ROOT, AgentFarm, AgentProcess


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def ticks_of(farm: AgentFarm, agent: AgentProcess) -> list[int]:
    batches = farm.server.bodies(agent.agent_id, Samples)
    return [sample.tick for batch in batches for sample in batch.samples]


def timed_steps_of(farm: AgentFarm, agent: AgentProcess) -> int:
    chunks = farm.server.bodies(agent.agent_id, StepTimes)
    return sum(len(chunk.times_s) for chunk in chunks if chunk.kind is StepKind.TIMED)


def spooled_samples_of(agent: AgentProcess) -> int:
    segments = (agent.state_dir / "spool").glob("*.jsonl")
    return sum(segment.read_text().count('"kind":"samples"') for segment in segments)


def assert_complete(farm: AgentFarm, agent: AgentProcess, *, steps: int) -> None:
    """One generation, every number, every step, every tick, the end last."""
    assert len(farm.server.generations(agent.agent_id)) == 1
    reports = farm.server.reports(agent.agent_id)
    assert [report.number for report in reports] == list(range(1, len(reports) + 1))
    assert reports[-1].kind == "ended"
    assert timed_steps_of(farm, agent) == steps
    ticks = ticks_of(farm, agent)
    assert ticks == list(range(len(ticks)))


def test_a_broker_client_killed_in_mid_attempt_loses_no_report(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1")
    gang = farm.gang(1, agent, steps=30)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    first = agent.broker_client()
    first.kill()
    wait_until(lambda: not first.is_running(), "the first broker client's end")
    [ended] = gang.wait_for(RankEnded)
    assert ended.result is not None
    assert agent.broker_client().pid != first.pid
    assert_complete(farm, agent, steps=30)


def test_a_redis_that_comes_back_empty_loses_no_report(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1", FARM_LEASE_S="60")
    gang = farm.gang(1, agent, steps=60)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    farm.redis.kill()
    farm.redis.start()
    [ended] = gang.wait_for(RankEnded, timeout_s=60)
    assert ended.result is not None
    assert_complete(farm, agent, steps=60)


def test_a_frozen_redis_does_not_stop_the_sampling(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1", FARM_LEASE_S="60")
    gang = farm.gang(1, agent, steps=60)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    farm.redis.freeze()
    before = spooled_samples_of(agent)
    wait_until(
        lambda: spooled_samples_of(agent) >= before + 2, "two more batches of samples on disk"
    )
    farm.redis.thaw()
    gang.wait_for(RankEnded, timeout_s=60)
    assert_complete(farm, agent, steps=60)


def test_a_hung_broker_client_does_not_stop_the_sampling(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.1", FARM_LEASE_S="60")
    gang = farm.gang(1, agent, steps=40)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    broker_client = agent.broker_client()
    broker_client.suspend()
    served = agent.state_dir / "served_rank"
    wait_until(lambda: not served.exists(), "the rank's end while its broker client hangs")
    broker_client.resume()
    gang.wait_for(RankEnded)
    assert_complete(farm, agent, steps=40)


def test_a_killed_agent_leaves_no_process_and_its_next_life_says_so(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:1,child")
    gang = farm.gang(6, agent)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    broker_client = agent.broker_client()
    wait_until(lambda: len(agent.trainers()) == 2, "trainer and child")
    agent.signal(signal.SIGKILL)
    agent.wait()
    wait_until(lambda: not broker_client.is_running(), "the broker client's end")
    # The child has left the group and hears of nothing; only the next life finds it.
    wait_until(lambda: len(agent.trainers()) == 1, "the trainer's end")
    agent.start()
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.AGENT_LOST
    assert agent.trainers() == []
    assert len(farm.server.generations(agent.agent_id)) == 1


def stray_lives(agent: AgentProcess) -> bool:
    """Whether what a trainer has started with an empty environment lives, by the pid it wrote."""
    try:
        stray = psutil.Process(int((agent.state_dir / "stray").read_text()))
        return stray.status() != psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return False


@pytest.mark.parametrize("is_stopped", [False, True], ids=["at the rank's end", "at SIGTERM"])
@pytest.mark.parametrize("what", ["stray", "hopping"])
def test_a_process_without_any_mark_does_not_outlive_its_rank(
    farm: AgentFarm, is_stopped: bool, what: str
) -> None:
    agent = farm.agent(f"steps_s:0.1,{what}")
    gang = farm.gang(1, agent, steps=600 if is_stopped else 10)
    gang.lead_to_go()
    wait_until(lambda: (agent.state_dir / "stray").exists(), "the stray")
    if is_stopped:
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
    gang.wait_for(RankEnded)
    assert not stray_lives(agent)


def test_unconfirmed_heartbeats_for_half_a_lease_kill_the_rank(farm: AgentFarm) -> None:
    agent = farm.agent("hang", FARM_LEASE_S="4")
    gang = farm.gang(1, agent)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    farm.server.confirms_beats = False
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.AGENT_LOST
    assert ended.failure.message == "no confirmation from the server for 2 s"
    assert agent.trainers() == []


def test_sigterm_reports_the_rank_and_leaves_no_process(farm: AgentFarm) -> None:
    agent = farm.agent("hang,child")
    gang = farm.gang(1, agent)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    broker_client = agent.broker_client()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.KILLED
    assert ended.failure.message == "agent was stopped"
    assert agent.trainers() == []
    assert not broker_client.is_running()
    beat = farm.await_state(agent, AgentState.LEAVING)
    wait_until(
        lambda: farm.beat(agent).serving_token is None,  # type: ignore[union-attr] # it has beaten
        "the word that the rank is gone",
    )
    assert beat.agent_id == agent.agent_id


def test_sigterm_with_the_broker_away_still_leaves_no_process(farm: AgentFarm) -> None:
    agent = farm.agent()
    broker_client = agent.broker_client()
    farm.redis.freeze()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert not broker_client.is_running()
    farm.redis.thaw()


def test_a_full_spool_takes_no_new_rank_until_its_reports_are_confirmed(farm: AgentFarm) -> None:
    agent = farm.agent(AGENT_SPOOL_MAX_BYTES="4096")
    gang = farm.gang(1, agent, steps=500)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    farm.server.confirms_reports = False
    farm.await_state(agent, AgentState.SPOOL_FULL)
    second = farm.gang(2, agent)
    second.start()
    # Commands are taken in order, so the refusal comes before the first confirmation.
    farm.server.confirms_reports = True
    [ended] = gang.wait_for(RankEnded)
    assert ended.result is not None  # the rank that filled it lost nothing
    [refused] = second.wait_for(RankEnded)
    assert refused.failure is not None
    assert refused.failure.message == "agent is spool_full"
    farm.await_state(agent, AgentState.IDLE)


def test_a_second_agent_on_the_same_state_is_refused_in_one_line(farm: AgentFarm) -> None:
    agent = farm.agent()
    second = subprocess.run(
        [sys.executable, "-m", "worker_agent"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **agent.settings},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 2
    [line] = second.stderr.splitlines()
    assert line.startswith("farm-agent: AGENT_STATE_DIR: ")
    assert "another agent uses it" in line
    assert agent.process is not None
    assert psutil.pid_exists(agent.process.pid)
