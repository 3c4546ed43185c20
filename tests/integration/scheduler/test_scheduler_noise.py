"""Disturbed attempts: void and tried again elsewhere, or measured and flagged."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.measuring.noise import NoiseLimits, NoisePolicy
from farm.messages.commands import Go, StartRank
from farm.messages.reports import PeersMeasured, RankEnded, Sample, Samples, Shaped, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.scheduler.outgoing import Outgoing, Rules
from farm.store.engine import reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import RankRow
from tests.factories import add_agent, add_attempt, add_job, add_sweep, job_spec, seconds
from tests.facts import lacking
from tests.stored.scheduler_round import run_round
from tests.stored.two_agents import FACTS, RESULT, RULES, STARTED, TwoAgents

FLAGGING = dataclasses.replace(
    RULES,
    limits=dataclasses.replace(RULES.limits, noise=NoiseLimits(policy=NoisePolicy.FLAG)),
)
WINDOW_S = 10
ENDED = RankEnded(
    result=dataclasses.replace(RESULT, timed_step_count=100, timed_window_s=float(WINDOW_S)),
    failure=None,
    timed_begun_s=0.0,
    log_tail="",
)
STEPS = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(0.1, 0.2) * 49 + (9, 9))


class NoisyGang(TwoAgents):
    """A gang whose rules, control runs and samples a test chooses."""

    rules: Rules = RULES

    def round(self, *, after_s: float = 0.1) -> list[Outgoing]:
        self.now += seconds(after_s)
        return run_round(self.engine, now=self.now, rules=self.rules)

    def measure_network(self, *, control_s: float = 1.0) -> tuple[int, list[Outgoing]]:
        """Lead the gang past its control runs; return the token and what comes after."""
        command = self.round()[0].command
        assert isinstance(command, StartRank)
        token = command.token
        self.prepare(token)
        self.round()
        self.report("a", token, 0, PeersMeasured(rtts=(), control_s=1.0))
        self.report("b", token, 1, PeersMeasured(rtts=(), control_s=control_s))
        self.both_report(token, Shaped(emulator="none", rtts=()))  # at once: nothing to shape
        return token, self.round()

    def train(self, *, control_s: float = 1.0, **disturbance: Any) -> int:
        """Lead the gang to its end, rank 1 disturbed as told; return the token."""
        token, _ = self.measure_network(control_s=control_s)
        self.both_report(token, STARTED)
        self.round()
        quiet = {"machine_cpu_ratio": 0.9, "cpu_ratio": 0.9, "machine_steal_ratio": 0.0}
        for agent_id, rank, seen in (("a", 0, quiet), ("b", 1, quiet | disturbance)):
            ticks = range(WINDOW_S + 1)
            samples = tuple(Sample(tick=tick, **seen) for tick in ticks)
            self.report(agent_id, token, rank, Samples(samples=samples))
        self.both_report(token, STEPS)
        self.both_report(token, ENDED)
        self.round()
        return token

    def rest(self, token: int) -> None:
        """Let both agents say that they are clean, until the pause is over."""
        for _ in range(2):
            self.beat("a", serving=None, highest=token)
            self.beat("b", serving=None, highest=token)
            self.now += seconds(5)
        self.beat("a", serving=None, highest=token)
        self.beat("b", serving=None, highest=token)

    def measurements(self) -> list[MeasurementRow]:
        with reading(self.engine) as session:
            return list(session.scalars(select(MeasurementRow)))


@pytest.fixture
def gang(engine: sa.Engine) -> NoisyGang:
    with writing(engine) as session:
        add_sweep(session, job_spec(world_size=2))
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    return NoisyGang(engine)


def remember(engine: sa.Engine, agent_id: str, *control_s: float) -> None:
    """Give an agent a past of control runs."""
    with writing(engine) as session:
        for value in control_s:
            job_id = add_job(session)
            token = add_attempt(
                session, job_id, [agent_id], state=AttemptState.FAILED, phase=RankPhase.ENDED
            )
            session.get_one(RankRow, (token, 0)).control_s = value


def test_a_quiet_attempt_is_measured_with_its_interval_and_outliers(gang: NoisyGang) -> None:
    gang.train()
    assert gang.job().state is JobState.SUCCEEDED
    [row] = gang.measurements()
    assert row.flags == []
    assert row.outlier_step_count == 2
    assert row.details["largest_outlier_s"] == 9
    assert (row.step_time_low_s, row.step_time_high_s) == (0.1, 0.2)
    assert row.control_ratio is None


def test_a_disturbed_attempt_is_measured_and_flagged(gang: NoisyGang) -> None:
    gang.train(machine_steal_ratio=0.05)
    assert gang.job().state is JobState.SUCCEEDED
    [row] = gang.measurements()
    [flag] = row.flags
    assert (flag["kind"], flag["value"]) == ("steal", 0.05)
    assert lacking(flag["message"], "agent b", "rank 1", "5 %", "stolen", "limit 2 %") == []


def test_a_badly_disturbed_attempt_is_void_and_its_job_tried_again(gang: NoisyGang) -> None:
    token = gang.train(machine_steal_ratio=0.14)
    [attempt] = gang.attempts()
    assert (attempt.state, attempt.failure_kind) == (AttemptState.VOID, "disturbed")
    assert gang.job().state is JobState.WAITING
    gang.rest(token)
    gang.train()
    assert gang.job().state is JobState.SUCCEEDED
    assert [a.state for a in gang.attempts()] == [AttemptState.VOID, AttemptState.SUCCEEDED]
    assert len(gang.measurements()) == 1


def test_a_job_that_is_always_disturbed_fails_with_that_reason_and_no_measurement(
    gang: NoisyGang,
) -> None:
    for _ in range(RULES.policy.max_attempts):
        gang.rest(gang.train(machine_steal_ratio=0.14))
    job = gang.job()
    assert (job.state, job.failure_kind) == (JobState.FAILED, "disturbed")
    assert lacking(job.reason, "agent b", "rank 1", "14 %", "stolen", "limit 10 %") == []
    assert gang.measurements() == []


def test_under_the_flagging_policy_it_is_measured_however_disturbed(gang: NoisyGang) -> None:
    gang.rules = FLAGGING
    remember(gang.engine, "b", *[1.0] * 5)
    gang.train(control_s=2.0, machine_steal_ratio=0.14)
    [row] = gang.measurements()
    assert [flag["kind"] for flag in row.flags] == ["steal", "control_run"]
    assert row.control_ratio == pytest.approx(2.0)


def test_a_machine_that_drifted_is_found_before_anything_is_measured(gang: NoisyGang) -> None:
    remember(gang.engine, "b", *[1.0] * 5)
    token, outgoing = gang.measure_network(control_s=1.5)
    assert not [due for due in outgoing if isinstance(due.command, Go)]
    [attempt] = [a for a in gang.attempts() if a.id == token]
    assert (attempt.state, attempt.failure_kind) == (AttemptState.VOID, "disturbed")
    facts = ("agent b", "rank 1", "control run", "50 % longer", "last 5", "limit 30 %")
    assert lacking(attempt.reason, *facts) == []


@pytest.mark.parametrize("past", [(), (1.0,) * 4, (1.5,) * 5])
def test_a_machine_without_a_past_or_true_to_it_goes_on(
    gang: NoisyGang, past: tuple[float, ...]
) -> None:
    remember(gang.engine, "b", *past)
    _, outgoing = gang.measure_network(control_s=1.5)
    assert [type(due.command) for due in outgoing] == [Go, Go]


def test_a_machine_that_changed_for_good_is_measured_again_after_three_void_attempts(
    engine: sa.Engine, gang: NoisyGang
) -> None:
    remember(engine, "b", *[1.0] * 20)
    gang.rules = dataclasses.replace(
        RULES, policy=dataclasses.replace(RULES.policy, max_attempts=9)
    )
    outcomes = []
    for _ in range(3):
        token, _ = gang.measure_network(control_s=1.5)
        outcomes += [a.state for a in gang.attempts() if a.id == token]
        gang.now += seconds(20)
        gang.rest(token)
    assert outcomes == [AttemptState.VOID] * 3
    gang.train(control_s=1.5)
    [row] = gang.measurements()
    assert [flag["kind"] for flag in row.flags] == ["control_run"]


def test_after_a_void_attempt_the_job_goes_to_another_machine(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_sweep(session, job_spec())
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    remember(engine, "a", *[1.0] * 5)
    gang = NoisyGang(engine)
    [first] = gang.round()
    assert isinstance(first.command, StartRank)
    assert first.agent_id == "a"
    token = first.command.token
    gang.prepare(token)
    gang.round()
    gang.report("a", token, 0, PeersMeasured(rtts=(), control_s=2.0))
    gang.round()
    gang.beat("a", serving=None, highest=token)
    gang.beat("b", serving=None, highest=0)
    retried = gang.round(after_s=3.0)
    assert [(due.agent_id, type(due.command)) for due in retried] == [("b", StartRank)]
