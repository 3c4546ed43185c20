"""Budgets of sweeps: what is spent, when no further job starts, and how one goes on."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.errors import InvalidTransition, NotFound
from farm.gang.lifecycle import AttemptState, JobState
from farm.scheduler.placing import PlacingState, place_jobs
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.queue.waiting import waiting_jobs
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.queue.waiting_reasons import waiting_reasons
from farm.store.sweeps.budgets import over_budget, spent_machine_s, use_up_budgets
from farm.store.sweeps.sweep_loads import sweep_loads
from farm.store.sweeps.sweeps import (
    SweepStatus,
    list_sweeps,
    pause_sweep,
    resume_sweep,
    sweep_summary,
)
from farm.store.tables import AgentRow, AttemptRow, JobRow, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_sweep, job_spec, seconds
from tests.stored.two_agents import RULES

HOUR = 3600.0


def limited_sweep(session: Session, *, job_count: int = 3, hours: float | None = 2.0) -> int:
    """Store a sweep of jobs of one agent each, and its budget."""
    job_ids = add_sweep(session, *(job_spec(seed=n) for n in range(job_count)))
    sweep_id = session.get_one(JobRow, job_ids[0]).sweep_id
    budget_s = None if hours is None else hours * HOUR
    session.get_one(SweepRow, sweep_id).budget_machine_s = budget_s
    return sweep_id


def spend(
    session: Session,
    sweep_id: int,
    *,
    hours: float,
    state: AttemptState = AttemptState.SUCCEEDED,
) -> None:
    """Let the first job that waits have taken so long, until now."""
    job = session.scalars(
        sa.select(JobRow)
        .where(JobRow.sweep_id == sweep_id, JobRow.state == JobState.WAITING)
        .order_by(JobRow.id)
        .limit(1)
    ).one()
    number = 1 + len(
        session.scalars(sa.select(AttemptRow.id).where(AttemptRow.job_id == job.id)).all()
    )
    token = add_attempt(session, job.id, state=state, number=number)
    session.get_one(AttemptRow, token).leased_at = NOW - dt.timedelta(hours=hours)


def placed(engine: sa.Engine, *, after_s: float = 0.0, state: PlacingState | None = None) -> int:
    """Return for how many jobs a scheduler finds an agent."""
    known = state or PlacingState(queue=WaitingQueue(epoch=NOW))
    return len(place_jobs(engine, now=NOW + seconds(after_s), rules=RULES, known=known))


def used_up_at(engine: sa.Engine, sweep_id: int) -> dt.datetime | None:
    with reading(engine) as session:
        return session.get_one(SweepRow, sweep_id).budget_used_up_at


def test_all_attempts_are_paid_for_times_their_agents(engine: sa.Engine) -> None:
    with writing(engine) as session:
        wide, narrow = add_sweep(session, job_spec(world_size=2), job_spec(seed=1))
        sweep_id = session.get_one(JobRow, wide).sweep_id
        other = limited_sweep(session)
        for job_id, number, state, taken_s in (
            (wide, 1, AttemptState.LOST, 10.0),
            (wide, 2, AttemptState.RUNNING, 100.0),  # up to now
            (narrow, 1, AttemptState.FAILED, 1000.0),
        ):
            token = add_attempt(session, job_id, state=state, number=number)
            session.get_one(AttemptRow, token).leased_at = NOW - seconds(taken_s)
    with reading(engine) as session:
        spent_s = spent_machine_s(session, [sweep_id, other], now=NOW)
        assert spent_s == {sweep_id: 2 * 10.0 + 2 * 100.0 + 1000.0, other: 0.0}
        later_s = spent_machine_s(session, [sweep_id], now=NOW + seconds(1))
        assert later_s == {sweep_id: spent_s[sweep_id] + 2}
        # The server's clock was set back by a day.
        before_s = spent_machine_s(session, [sweep_id], now=NOW - seconds(86400))
        assert before_s == {sweep_id: 2 * 10.0 + 1000.0}
        assert spent_machine_s(session, [], now=NOW) == {}


@pytest.mark.parametrize("is_kept", [True, False])
def test_no_job_starts_once_the_budget_is_used_up_until_there_is_another(
    engine: sa.Engine, is_kept: bool
) -> None:
    state = PlacingState(queue=WaitingQueue(epoch=NOW) if is_kept else None)
    with writing(engine) as session:
        sweep_id = limited_sweep(session)
        for name in ("a", "b"):
            add_agent(session, name, machine_id=name)
        spend(session, sweep_id, hours=1.999)
    with reading(engine) as session:
        assert sweep_summary(session, sweep_id).status is SweepStatus.RUNNING
    # What is left pays for the beginning of both, and then ends.
    assert placed(engine, state=state) == 2
    with writing(engine) as session:
        for agent in session.scalars(sa.select(AgentRow)):
            agent.attempt_id, agent.lease_expires_at = None, None
            agent.heartbeat_at = NOW + seconds(60)
        session.execute(
            sa.update(JobRow)
            .where(JobRow.attempt_id.is_not(None))
            .values(state=JobState.WAITING, attempt_id=None, due_at=NOW)
        )
        session.execute(
            sa.update(AttemptRow)
            .where(AttemptRow.ended_at.is_(None))
            .values(state=AttemptState.LOST, ended_at=NOW + seconds(30))
        )
        other = limited_sweep(session, job_count=1, hours=None)
    later = NOW + seconds(60)
    assert placed(engine, after_s=60, state=state) <= 1
    assert placed(engine, after_s=60, state=state) <= 1
    assert used_up_at(engine, sweep_id) == later
    with reading(engine) as session:
        [started] = session.scalars(sa.select(JobRow).where(JobRow.state == JobState.LEASED))
        assert started.sweep_id == other
        agents = live_agents(session, now=later, live_within_s=20)
        reasons = waiting_reasons(
            session, now=later, agents=agents, reserve_after_s=60, idle_reason=lambda: None
        )
        held = [one for one in reasons.values() if one.sweep_id == sweep_id]
        assert {(one.text, one.is_held) for one in held} == {
            ("its sweep's budget of 2 machine hours is used up", True)
        }
        assert len(held) == 2
        assert waiting_jobs(session, now=later) == []
        assert sweep_loads(session, now=later)[sweep_id].held_count == 2
        summary = sweep_summary(session, sweep_id)
        assert (summary.status, summary.is_held) == (SweepStatus.OVER_BUDGET, True)
        found = list_sweeps(session, status=SweepStatus.OVER_BUDGET)
        assert [one.sweep_id for one in found] == [sweep_id]
        assert sweep_id not in {
            one.sweep_id for one in list_sweeps(session, status=SweepStatus.RUNNING)
        }
    with writing(engine) as session:
        assert resume_sweep(session, sweep_id, budget_machine_s=3 * HOUR, now=later)
    assert placed(engine, after_s=60, state=state) == 1
    with reading(engine) as session:
        assert sweep_summary(session, sweep_id).status is SweepStatus.RUNNING


def test_no_agent_is_reserved_for_a_job_whose_budget_is_used_up(engine: sa.Engine) -> None:
    with writing(engine) as session:
        wide, _ = add_sweep(session, job_spec(world_size=2), job_spec(seed=1))
        sweep_id = session.get_one(JobRow, wide).sweep_id
        session.get_one(SweepRow, sweep_id).budget_machine_s = HOUR
        session.get_one(JobRow, wide).due_at = NOW - seconds(3 * HOUR)
        spend(session, sweep_id, hours=2.0)
        add_agent(session, "idle", machine_id="m1")
        add_agent(session, "at work", machine_id="m2")
        [at_work] = add_sweep(session, job_spec())
        add_attempt(session, at_work, ["at work"], state=AttemptState.RUNNING)
        other = limited_sweep(session, job_count=1, hours=None)
    assert placed(engine) == 1
    with reading(engine) as session:
        [started] = session.scalars(sa.select(JobRow).where(JobRow.state == JobState.LEASED))
        assert started.sweep_id == other


def test_a_budget_is_used_up_once_and_again_after_it_was_raised(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep_id = limited_sweep(session)
        add_agent(session, "a")
        spend(session, sweep_id, hours=2.0)
    for after_s in (0.0, 5.0):  # two schedulers, or one that was started again
        assert placed(engine, after_s=after_s) == 0
    assert used_up_at(engine, sweep_id) == NOW
    with writing(engine) as session:
        resume_sweep(session, sweep_id, budget_machine_s=2.5 * HOUR, now=NOW)
        spend(session, sweep_id, hours=1.0, state=AttemptState.FAILED)
    assert used_up_at(engine, sweep_id) is None
    assert placed(engine, after_s=9.0) == 0
    assert used_up_at(engine, sweep_id) == NOW + seconds(9)


def test_schedulers_at_once_agree_since_when_a_budget_is_used_up(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep_id = limited_sweep(session)
        for number in range(4):
            add_agent(session, f"a{number}", machine_id=f"m{number}")
        spend(session, sweep_id, hours=2.0)
    together = threading.Barrier(2)
    counts: list[int] = []

    def run(after_s: float) -> None:
        together.wait(60)
        counts.append(placed(engine, after_s=after_s))

    threads = [threading.Thread(target=run, args=(after_s,)) for after_s in (0.0, 1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [0, 0]
    first = used_up_at(engine, sweep_id)
    assert first in (NOW, NOW + seconds(1))
    assert placed(engine, after_s=2.0) == 0
    assert used_up_at(engine, sweep_id) == first


def test_a_budget_that_was_raised_meanwhile_is_not_used_up(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep_id = limited_sweep(session)
        spend(session, sweep_id, hours=2.0)
    with writing(engine) as session:
        resume_sweep(session, sweep_id, budget_machine_s=2.1 * HOUR, now=NOW)
        use_up_budgets(session, [sweep_id], now=NOW)
        use_up_budgets(session, [], now=NOW)
    assert used_up_at(engine, sweep_id) is None


def test_a_sweep_is_resumed_within_a_budget_that_leaves_something(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep_id = limited_sweep(session)
        unlimited = limited_sweep(session, hours=None)
        spend(session, sweep_id, hours=2.0)
        assert over_budget(session, [sweep_id, unlimited], now=NOW) == {sweep_id: 2 * HOUR}
        use_up_budgets(session, [sweep_id, unlimited], now=NOW)
        pause_sweep(session, sweep_id)
    with reading(engine) as session:
        assert sweep_summary(session, sweep_id).status is SweepStatus.PAUSED
    for budget_s, message in (
        (None, "its budget of 2 machine hours is used up"),
        (2 * HOUR, "a budget_machine_hours above what is spent, 2 machine hours, got 2"),
    ):
        with writing(engine) as session, pytest.raises(InvalidTransition, match=message):
            resume_sweep(session, sweep_id, budget_machine_s=budget_s, now=NOW)
    with writing(engine) as session:
        assert sweep_summary(session, sweep_id).is_paused
        assert resume_sweep(session, sweep_id, budget_machine_s=3 * HOUR, now=NOW)
        assert not resume_sweep(session, sweep_id, budget_machine_s=3 * HOUR, now=NOW)
        assert not resume_sweep(session, sweep_id, budget_machine_s=None, now=NOW)
        assert not sweep_summary(session, sweep_id).is_held
        assert resume_sweep(session, unlimited, budget_machine_s=HOUR, now=NOW)
        with pytest.raises(NotFound):
            resume_sweep(session, 4711, budget_machine_s=None, now=NOW)
