"""What the scheduler finds out beside its rounds, and what a round makes of it."""

import datetime as dt

import sqlalchemy as sa

from farm.core.lifecycle import AttemptState
from farm.core.views import GangAtWork
from farm.scheduler.lengths import JobLengths
from farm.scheduler.outgoing import Rules
from farm.scheduler.placing import Recollection
from farm.store.engine import reading, writing
from farm.store.gangs import gangs_at_work
from farm.store.tables import Attempt, Job
from farm.store.waiting import waiting_jobs
from tests.factories import NOW, add_agent, add_attempt, add_job, add_sweep, job_spec, seconds
from tests.scheduler_round import run_round

RULES = Rules(lease=dt.timedelta(seconds=20), reserve_after_s=60.0)


def test_the_gangs_at_work_are_told_with_their_age(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session, job_spec(strategy="mwms_ring", world_size=2))
        agents = [add_agent(session, name) for name in ("a", "b")]
        add_attempt(session, job_id, agents, state=AttemptState.RUNNING)
        add_agent(session, "c")
        job = session.get_one(Job, job_id)
        told = gangs_at_work(session, now=NOW + seconds(5), expected_s={job.cell_hash: 9.0})
    assert told == [
        GangAtWork(sweep_id=job.sweep_id, agent_ids=("a", "b"), age_s=5.0, expected_s=9.0)
    ]


def test_lengths_come_from_the_gangs_that_succeeded(engine: sa.Engine) -> None:
    with writing(engine) as session:
        done, _ = add_sweep(session, job_spec(steps=7), job_spec(steps=7, repetition=1))
        token = add_attempt(session, done, state=AttemptState.SUCCEEDED)
        session.get_one(Attempt, token).ended_at = NOW + seconds(33)
    lengths = JobLengths(engine)
    lengths.refresh()
    with reading(engine) as session:
        [waiting] = waiting_jobs(session, now=NOW, expected_s=lengths.expected_s)
    assert waiting.expected_s == 33.0


def test_a_round_starts_the_longer_job_and_remembers_when(engine: sa.Engine) -> None:
    short, long = job_spec(steps=10), job_spec(steps=1000)
    with writing(engine) as session:
        add_agent(session, "a")
        _, longer = add_sweep(session, short, long)
        sweep_id = session.get_one(Job, longer).sweep_id
    known = Recollection({short.cell_hash: 1.0, long.cell_hash: 100.0})
    run_round(engine, now=NOW, rules=RULES, recollection=known)
    with reading(engine) as session:
        [attempt] = session.scalars(sa.select(Attempt)).all()
        assert attempt.job_id == longer
    assert known.last_starts == {sweep_id: NOW}
