"""Real agents with fake trainers on a real Redis: how an attempt goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.messages.agents import AgentState
from farm.messages.commands import Peers, Shape, StopAttempt
from farm.messages.reports import (
    LogPart,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Samples,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import Epoch, FailureKind, StepKind
from tests.facts import lacking
from tests.fakes.server import wait_until
from tests.machine.agents import AgentFarm, AgentProcess


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[AgentFarm]:
    with AgentFarm(tmp_path) as farm:
        yield farm


def test_a_gang_of_two_passes_all_barriers_and_reports_everything(farm: AgentFarm) -> None:
    first, second = farm.agent("steps_s:0.2"), farm.agent("steps_s:0.2,noise")
    gang = farm.gang(7, first, second, steps=15, warmup_step_count=5)
    gang.lead_to_go()
    farm.await_state(first, AgentState.BUSY)
    ended = gang.wait_for(RankEnded)

    for rank, agent in enumerate((first, second)):
        reports = farm.server.reports(agent.agent_id, 7)
        kinds = [report.kind for report in reports]
        assert kinds[:3] == ["prepared", "peers", "shaped"]
        assert kinds[-1] == "ended"
        assert {report.rank for report in reports} == {rank}
        assert kinds.count("started") == 1
        [rtt] = farm.server.bodies(agent.agent_id, PeersMeasured)[0].rtts
        assert rtt.rank == 1 - rank
        assert 0 < rtt.rtt_s < 0.1
        assert rtt.probe_count == 20
        assert farm.server.bodies(agent.agent_id, Shaped)[0].emulator == "none"
        assert ended[rank].failure is None
        assert ended[rank].result is not None
        assert ended[rank].timed_begun_s == pytest.approx(1.0, abs=0.7)
        chunks = farm.server.bodies(agent.agent_id, StepTimes)
        timed = [t for chunk in chunks if chunk.kind is StepKind.TIMED for t in chunk.times_s]
        assert timed == [0.2] * 15
        batches = farm.server.bodies(agent.agent_id, Samples)
        ticks = [sample.tick for batch in batches for sample in batch.samples]
        assert ticks == list(range(len(ticks)))
        assert len(ticks) >= 4
    farm.await_state(first, AgentState.IDLE)
    counters = [beat.counter for beat in farm.server.beats[first.agent_id]]
    assert counters == list(range(1, len(counters) + 1))
    assert farm.beat(first).highest_token == 7  # type: ignore[union-attr] # it has beaten


def test_samples_carry_what_this_machine_can_measure(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.25")
    gang = farm.gang(1, agent, steps=10)
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    batches = farm.server.bodies(agent.agent_id, Samples)
    samples = [sample for batch in batches for sample in batch.samples]
    assert samples[0].machine_cpu_ratio is None
    assert samples[0].net_rx_bytes_per_s is None
    for sample in samples[1:3]:
        assert sample.machine_cpu_ratio is not None
        assert 0 <= sample.machine_cpu_ratio <= 1
        assert sample.machine_steal_ratio is not None
        assert sample.cpu_ratio is not None
        assert sample.resident_bytes is not None
        assert sample.resident_bytes > 1_000_000
        assert sample.memory_used_bytes is not None
        # Redis and the agents speak over the same interface.
        assert sample.net_rx_bytes_per_s is not None
        assert sample.net_rx_bytes_per_s >= 0


def test_every_command_may_come_three_times(farm: AgentFarm) -> None:
    agent = farm.agent()
    gang = farm.gang(3, agent, steps=None, epochs=2)
    gang.copies = 3
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    farm.await_state(agent, AgentState.IDLE)
    gang.start()  # late copies of the first command as well
    other = farm.gang(4, agent)
    other.lead_to_go()
    other.wait_for(RankEnded)
    for kind in (Prepared, PeersMeasured, Shaped, RankStarted, RankEnded):
        assert len(farm.server.bodies(agent.agent_id, kind, 3)) == 1, kind
    assert len(farm.server.bodies(agent.agent_id, Epoch, 3)) == 2
    assert len(farm.server.bodies(agent.agent_id, RankEnded, 4)) == 1


def test_a_lower_token_is_refused_even_after_a_restart(farm: AgentFarm) -> None:
    agent = farm.agent()
    gang = farm.gang(9, agent)
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    agent.stop()
    boots = {beat.boot_id for beat in farm.server.beats[agent.agent_id]}
    agent.start()
    wait_until(
        lambda: farm.beat(agent).boot_id not in boots,  # type: ignore[union-attr]
        "a heartbeat of the second life",
    )
    old = farm.gang(8, agent)
    old.start()
    [refused] = old.wait_for(RankEnded)
    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.REFUSED
    assert "lower than 9" in refused.failure.message
    assert farm.server.bodies(agent.agent_id, Prepared, 8) == []


def test_more_ranks_than_an_agent_has_cores_are_refused(farm: AgentFarm) -> None:
    agent = farm.agent(AGENT_CPUS="0")  # a former one of its name had more cores
    gang = farm.gang(1, agent, world_size=2, axes={"ranks_per_agent": 2})
    gang.start()
    [refused] = gang.wait_for(RankEnded)
    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.REFUSED
    assert lacking(refused.failure.message, "not 2 cores for 2 ranks", "AGENT_SHARES_CORES") == []


def test_a_busy_agent_refuses_a_second_rank_and_keeps_the_first(farm: AgentFarm) -> None:
    agent = farm.agent("steps_s:0.2")
    gang = farm.gang(1, agent, steps=10)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    intruder = farm.gang(2, agent)
    intruder.start()
    [refused] = intruder.wait_for(RankEnded)
    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.REFUSED
    [ended] = gang.wait_for(RankEnded)
    assert ended.result is not None


def test_stopping_an_attempt_kills_whatever_its_trainers_started(farm: AgentFarm) -> None:
    agent = farm.agent("hang,child")
    gang = farm.gang(5, agent)
    gang.lead_to_go()
    gang.wait_for(RankStarted)
    wait_until(lambda: len(agent.trainers()) == 2, "trainer and child")
    for _ in range(2):
        farm.server.send(agent.agent_id, StopAttempt(token=5, reason="cancelled"))
    beat = farm.await_state(agent, AgentState.IDLE)
    assert beat.serving_token is None
    assert agent.trainers() == []
    gang.start()  # a late copy must not bring the attempt back to life
    farm.server.send(agent.agent_id, StopAttempt(token=11, reason="a token never seen"))
    wait_until(
        lambda: farm.beat(agent).highest_token == 11,  # type: ignore[union-attr]
        "the higher token",
    )
    assert farm.server.bodies(agent.agent_id, RankEnded, 5) == []
    assert len(farm.server.bodies(agent.agent_id, Prepared, 5)) == 1


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("fail:not_a_number", FailureKind.NOT_A_NUMBER, "told to fail"),
        ("exit:3", FailureKind.TRAINER_RAISED, "exit status 3"),
        (
            "user_code,exit:3",
            FailureKind.TRAINER_RAISED,
            "model cnn_small: expected its code to return",
        ),
        ("user_code,signal:11", FailureKind.TRAINER_RAISED, "crashed with SIGSEGV"),
        ("user_code,signal:15", FailureKind.TRAINER_RAISED, "ended its process with SIGTERM"),
        ("signal:9", FailureKind.KILLED, "SIGKILL"),
        ("hang", FailureKind.STALLED, "said nothing for 1 s"),
    ],
)
def test_the_reason_of_a_failure_is_reported(
    farm: AgentFarm, behaviour: str, kind: FailureKind, words: str
) -> None:
    agent = farm.agent(behaviour, AGENT_PROGRESS_TIMEOUT_S="1")
    gang = farm.gang(1, agent)
    gang.lead_to_go()
    [ended] = gang.wait_for(RankEnded)
    assert ended.result is None
    assert ended.failure is not None
    assert ended.failure.kind is kind
    assert words in ended.failure.message
    assert "the fake trainer begins" in ended.log_tail
    assert agent.trainers() == []
    farm.await_state(agent, AgentState.IDLE)


def test_a_trainer_that_is_never_ready_misses_the_barrier(farm: AgentFarm) -> None:
    agent = farm.agent("never_ready")
    gang = farm.gang(1, agent)
    gang.start(prepare_timeout_s=0.5)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.RENDEZVOUS
    assert agent.trainers() == []


def test_a_model_that_is_never_built_is_its_own_failure(farm: AgentFarm) -> None:
    agent = farm.agent("user_code,hang")
    gang = farm.gang(1, agent)
    gang.lead_to_go(start_timeout_s=1.0)
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.TRAINER_RAISED
    assert "model cnn_small: expected its build to return, but first step" in ended.failure.message


def test_a_profile_that_no_emulator_serves_is_a_network_failure(farm: AgentFarm) -> None:
    agent = farm.agent()
    gang = farm.gang(1, agent)
    profile = NetworkProfile(packet_loss_ratio=0.02)  # on loopback, where nothing can lose packets
    gang.spec = replace(gang.spec, network=profile)
    gang.start()
    farm.server.send(agent.agent_id, Peers(token=1, addresses=gang.addresses(), timeout_s=5))
    gang.wait_for(PeersMeasured)
    assert farm.server.bodies(agent.agent_id, Shaped) == []
    farm.server.send(agent.agent_id, Shape(token=1, profile=profile, timeout_s=5))
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.NETWORK
    assert "tc_netem: lo is not shaped" in ended.failure.message


def test_ports_are_free_for_the_trainer_when_it_goes(farm: AgentFarm) -> None:
    agent = farm.agent("ports")
    gang = farm.gang(1, agent)
    gang.lead_to_go()
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is None


def log_of(farm: AgentFarm, agent: AgentProcess, token: int) -> str:
    """The log that has arrived, of parts that follow each other."""
    text = ""
    for part in farm.server.bodies(agent.agent_id, LogPart, token):
        assert part.first_character == len(text)
        text += part.text
    return text


def test_what_a_trainer_writes_arrives_while_it_trains_and_whole_in_the_end(
    farm: AgentFarm,
) -> None:
    agent = farm.agent("steps_s:0.5,noise")
    gang = farm.gang(1, agent, steps=6)
    gang.lead_to_go()
    gang.wait_for(RankEnded)
    kinds = [report.kind for report in farm.server.reports(agent.agent_id, 1)]
    last_steps = max(n for n, kind in enumerate(kinds) if kind == "steps")
    assert kinds.index("log") < last_steps
    assert kinds[-1] == "ended"
    lines = log_of(farm, agent, 1).splitlines()
    assert sorted(lines) == ["a library says hello", "the fake trainer begins"]


def test_a_trainer_that_writes_without_end_costs_its_agent_some_kilobytes(farm: AgentFarm) -> None:
    agent = farm.agent("flood:50,exit:3")
    gang = farm.gang(1, agent)
    gang.lead_to_go()
    [ended] = gang.wait_for(RankEnded)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.TRAINER_RAISED
    log = log_of(farm, agent, 1)
    assert "bytes were left out here]\n" in log
    assert log.endswith("the flood is over\nthe fake trainer was told to leave\n")
    assert len(log) < 500_000
    kinds = [report.kind for report in farm.server.reports(agent.agent_id, 1)]
    assert kinds[-1] == "ended"
