"""A server whose clock is set: nothing waits until the clock is where it was, nothing is lost."""

from __future__ import annotations

import datetime as dt

import pytest
import sqlalchemy as sa

from farm.gang.barriers import Limits
from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.gang.retries import MAX_WAIT_S, RetryPolicy, pause_s
from farm.scheduler.outgoing import Rules
from farm.scheduler.placing import PlacingState, place_jobs
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.gangs.clock_steps import follow_clock
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.queue.waiting_reasons import ABOUT_TO_START, IS_PAUSING, waiting_reasons
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow
from tests.factories import NOW, add_agent, add_attempt, add_job, seconds
from tests.stored.scheduler_round import run_round

POLICY = RetryPolicy(max_attempts=3, wait_s=2.0)
LEASE = dt.timedelta(seconds=20)
RULES = Rules(lease=LEASE, reserve_after_s=60.0, limits=Limits(prepare_s=30.0), policy=POLICY)


@pytest.fixture(params=["kept", "read"])
def known(request: pytest.FixtureRequest) -> PlacingState:
    queue = WaitingQueue(epoch=NOW, policy=POLICY) if request.param == "kept" else None
    return PlacingState(queue=queue)


def _reason(engine: sa.Engine, job_id: int, *, now: dt.datetime) -> str:
    with reading(engine) as session:
        agents = live_agents(session, now=now, live_within_s=20.0)
        found = waiting_reasons(
            session,
            now=now,
            agents=agents,
            reserve_after_s=60.0,
            policy=POLICY,
            idle_reason=lambda: None,
        )
    return found[job_id].text


def _is_placed(engine: sa.Engine, job_id: int) -> bool:
    with reading(engine) as session:
        return session.get_one(JobRow, job_id).state is JobState.LEASED


@pytest.mark.parametrize("attempt_count", [0, 1, 2])
def test_a_job_stored_while_the_clock_was_ahead_starts_at_once(
    engine: sa.Engine, known: PlacingState, attempt_count: int
) -> None:
    with writing(engine) as session:
        add_agent(session)
        ahead = NOW + seconds(3600)
        job_id = add_job(session, due_at=ahead, created_at=ahead, attempt_count=attempt_count)
    assert _reason(engine, job_id, now=NOW) == ABOUT_TO_START
    place_jobs(engine, now=NOW, rules=RULES, known=known)
    assert _is_placed(engine, job_id)


@pytest.mark.parametrize("attempt_count", [1, 2])
@pytest.mark.parametrize("left", [0.001, 0.5, 1.0])
def test_a_retry_waits_for_its_pause_and_no_longer(
    engine: sa.Engine, known: PlacingState, attempt_count: int, left: float
) -> None:
    left_s = left * pause_s(attempt_count, policy=POLICY)
    with writing(engine) as session:
        add_agent(session)
        job_id = add_job(session, due_at=NOW + seconds(left_s), attempt_count=attempt_count)
    assert _reason(engine, job_id, now=NOW) == IS_PAUSING
    place_jobs(engine, now=NOW, rules=RULES, known=known)
    assert not _is_placed(engine, job_id)
    then = NOW + seconds(left_s)
    assert _reason(engine, job_id, now=then) == ABOUT_TO_START
    place_jobs(engine, now=then, rules=RULES, known=known)
    assert _is_placed(engine, job_id)


def test_no_pause_is_longer_than_the_longest() -> None:
    policy = RetryPolicy(max_attempts=10_000, wait_s=2.0)
    assert pause_s(5000, policy=policy) == MAX_WAIT_S


def _gang(engine: sa.Engine, *, at: dt.datetime, state: AttemptState) -> int:
    """An attempt that went into this state at an instant, and was commanded then."""
    with writing(engine) as session:
        add_agent(session, heartbeat_at=at)
        token = add_attempt(session, add_job(session), ["a1"], state=state)
        attempt = session.get_one(AttemptRow, token)
        attempt.state_since = attempt.leased_at = attempt.started_at = at
        session.get_one(RankRow, (token, 0)).commanded_at = at
        session.get_one(AgentRow, "a1").lease_expires_at = at + LEASE
    return token


def _follow(engine: sa.Engine, *, now: dt.datetime, step_s: float) -> None:
    with writing(engine) as session:
        follow_clock(session, now=now, step_s=step_s, lease=LEASE, policy=POLICY)


def _state(engine: sa.Engine, token: int) -> AttemptState:
    with reading(engine) as session:
        return session.get_one(AttemptRow, token).state


@pytest.mark.parametrize("step_s", [-3600.0, 0.0], ids=["noticed", "before the start"])
def test_an_agent_that_died_before_the_clock_was_set_back_loses_its_gang_after_a_lease(
    engine: sa.Engine, step_s: float
) -> None:
    token = _gang(engine, at=NOW + seconds(3600), state=AttemptState.RUNNING)
    _follow(engine, now=NOW, step_s=step_s)
    run_round(engine, now=NOW + seconds(19), rules=RULES)
    assert _state(engine, token) is AttemptState.RUNNING
    run_round(engine, now=NOW + seconds(21), rules=RULES)
    assert _state(engine, token) is AttemptState.LOST
    with reading(engine) as session:
        assert not live_agents(session, now=NOW + seconds(21), live_within_s=20.0)


def test_a_command_lost_before_the_clock_was_set_back_is_sent_again(engine: sa.Engine) -> None:
    _gang(engine, at=NOW + seconds(3600), state=AttemptState.PREPARING)
    _follow(engine, now=NOW, step_s=-3600.0)
    assert run_round(engine, now=NOW + seconds(5), rules=RULES)


def test_a_barrier_keeps_its_limit_when_the_clock_is_set_back(engine: sa.Engine) -> None:
    token = _gang(engine, at=NOW + seconds(3600), state=AttemptState.PREPARING)
    _follow(engine, now=NOW, step_s=-3600.0)
    with writing(engine) as session:
        session.get_one(AgentRow, "a1").lease_expires_at = NOW + seconds(600)
    run_round(engine, now=NOW + seconds(31), rules=RULES)
    assert _state(engine, token) is AttemptState.LOST


@pytest.mark.parametrize("state", [AttemptState.PREPARING, AttemptState.RUNNING])
def test_a_clock_that_is_set_forward_ends_nothing(engine: sa.Engine, state: AttemptState) -> None:
    token = _gang(engine, at=NOW, state=state)
    ahead = NOW + seconds(3610)
    _follow(engine, now=ahead, step_s=3600.0)
    run_round(engine, now=ahead, rules=RULES)
    assert _state(engine, token) is state
    with reading(engine) as session:
        assert session.get_one(AttemptRow, token).state_since == NOW + seconds(3600)
    run_round(engine, now=ahead + seconds(21), rules=RULES)
    assert _state(engine, token) is AttemptState.LOST


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_two_schedulers_that_follow_the_same_step_leave_nothing_in_the_future(
    engine: sa.Engine, step_s: float
) -> None:
    token = _gang(engine, at=NOW, state=AttemptState.RUNNING)
    with writing(engine) as session:
        session.get_one(RankRow, (token, 0)).phase = RankPhase.ENDED
        session.get_one(RankRow, (token, 0)).ended_at = NOW
        add_agent(session, "a2", unclean_token=token, stop_sent_at=NOW)
    now = NOW + seconds(step_s)
    for _ in range(2):
        _follow(engine, now=now, step_s=step_s)
    with reading(engine) as session:
        attempt, rank = session.get_one(AttemptRow, token), session.get_one(RankRow, (token, 0))
        instants = attempt.state_since, attempt.started_at, rank.commanded_at, rank.ended_at
        assert all(at is not None and at <= now for at in instants)
        for agent in session.scalars(sa.select(AgentRow)):
            assert agent.heartbeat_at is not None
            assert agent.heartbeat_at <= now
            assert agent.stop_sent_at is None or agent.stop_sent_at <= now
            assert agent.lease_expires_at is None or agent.lease_expires_at <= now + LEASE
