"""One attempt or job that makes no sense costs itself, never the rounds of all the others."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.commands import StartRank
from farm.messages.reports import RankEnded, StepTimes
from farm.messages.trainer_lines import Failure, FailureKind, StepKind
from farm.store.engine import reading, writing
from farm.store.gangs.attempts import active_attempts
from farm.store.sweeps.jobs import request_cancel_sweep
from farm.store.tables import AttemptRow, JobRow
from tests.factories import add_agent, add_sweep, job_spec
from tests.stored.two_agents import ENDED, FACTS, RULES, TwoAgents


@pytest.fixture
def gang(engine: sa.Engine) -> TwoAgents:
    with writing(engine) as session:
        add_sweep(session, job_spec(world_size=2))
        for agent_id, facts in FACTS.items():
            add_agent(session, agent_id, facts=facts, lease_boot_id=f"boot of {agent_id}")
    return TwoAgents(engine)


def test_a_result_of_a_rank_that_never_started_is_no_measurement(
    gang: TwoAgents,
) -> None:
    token = gang.round()[0].command.token  # type: ignore[union-attr] # it is a StartRank
    gang.both_report(token, ENDED)
    for _ in range(6):
        gang.round()
    assert gang.attempts()[0].state is AttemptState.LOST
    assert gang.job().state is JobState.WAITING


def test_a_failure_with_half_a_character_ends_its_attempt(
    gang: TwoAgents,
) -> None:
    token = gang.start()
    failure = Failure(kind=FailureKind.TRAINER_RAISED, message="no file caf\udce9")
    gang.report(
        "a", token, 0, RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
    )
    gang.round()
    assert gang.job().state is JobState.FAILED


@pytest.mark.parametrize("time_s", [0.0, -1.0, 5e-324, 1e308])
def test_steps_that_took_what_no_clock_measures_are_no_measurement(
    gang: TwoAgents, time_s: float
) -> None:
    """Their throughput or their sum would be infinite, which no JSON can tell anybody."""
    token = gang.start()
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(time_s,) * 3)
    gang.both_report(token, steps)
    gang.both_report(token, ENDED)
    gang.round()
    assert gang.attempts()[0].state is AttemptState.LOST
    assert gang.attempts()[0].failure_kind == "senseless"


def test_an_attempt_that_cannot_be_decided_on_does_not_stop_the_others(
    gang: TwoAgents,
) -> None:
    token = gang.start()
    with writing(gang.engine) as session:
        session.scalars(select(JobRow)).one().spec = {"nonsense": True}
        add_sweep(session, job_spec())
        add_agent(session, "c", facts=dataclasses.replace(FACTS["a"], machine_id="m3"))
    gang.round()
    with reading(gang.engine) as session:
        assert session.get_one(AttemptRow, token).state is AttemptState.LOST


def test_a_waiting_job_that_cannot_be_started_ends_and_keeps_no_other_waiting(
    gang: TwoAgents,
) -> None:
    with writing(gang.engine) as session:
        bad = session.scalars(select(JobRow)).one()
        bad.spec = {**bad.spec, "strategy": "gone_since_the_upgrade"}
        [good_id] = add_sweep(session, job_spec())
        add_agent(session, "c", facts=dataclasses.replace(FACTS["a"], machine_id="m3"))
    gang.round()
    with reading(gang.engine) as session:
        assert session.get_one(JobRow, good_id).state is JobState.LEASED
    for _ in range(RULES.policy.max_attempts):
        gang.round(after_s=4.0)
        for agent_id in "ab":
            gang.beat(agent_id, serving=None, highest=gang.attempts()[-1].id)
        gang.round(after_s=2.0)
    with reading(gang.engine) as session:
        ended = session.get_one(JobRow, good_id - 1)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, "senseless")
    assert ended.reason is not None
    assert "gone_since_the_upgrade" in ended.reason


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_an_attempt_whose_job_is_locked_is_left_to_the_next_round(
    gang: TwoAgents,
) -> None:
    token = gang.start()
    with writing(gang.engine) as canceller, writing(gang.engine) as scheduler:
        request_cancel_sweep(canceller, 1, now=gang.now)
        assert active_attempts(scheduler, [token], now=gang.now).attempts == ()
    with writing(gang.engine) as scheduler:
        [view] = active_attempts(scheduler, [token], now=gang.now).attempts
    assert (view.token, view.cancel_requested) == (token, True)


def test_a_store_created_anew_leases_beyond_every_token_its_agents_have_seen(
    gang: TwoAgents,
) -> None:
    gang.beat("a", serving=None, highest=500)
    gang.beat("b", serving=None, highest=300)
    starts = [due.command for due in gang.round()]
    assert [c.token for c in starts if isinstance(c, StartRank)] == [501, 501]


def test_a_damaged_token_of_one_agent_does_not_use_up_all_tokens(
    gang: TwoAgents,
) -> None:
    gang.beat("a", serving=None, highest=2**63 - 1)
    starts = [due.command for due in gang.round()]
    assert [c.token for c in starts if isinstance(c, StartRank)] == [1, 1]
