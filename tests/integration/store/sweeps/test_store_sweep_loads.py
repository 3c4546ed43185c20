"""What is left of sweeps and what their jobs took, summed up by the database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.placement.progress import JobPace, UnfinishedJob
from farm.store.engine import reading, writing
from farm.store.sweeps.sweep_loads import latest_paces, paces, sweep_loads
from farm.store.sweeps.sweeps import pause_sweep
from farm.store.tables import AttemptRow, JobRow
from tests.factories import NOW, add_agent, add_attempt, add_sweep, job_spec, seconds


def decide(
    session: Session,
    job_id: int,
    duration_s: float,
    *,
    state: AttemptState = AttemptState.SUCCEEDED,
    number: int = 1,
) -> None:
    token = add_attempt(session, job_id, state=state, number=number)
    session.get_one(AttemptRow, token).ended_at = NOW + seconds(duration_s)


def sweep_of(session: Session, job_id: int) -> int:
    return session.get_one(JobRow, job_id).sweep_id


def test_a_pace_is_the_mean_of_what_was_decided_by_width(engine: sa.Engine) -> None:
    with writing(engine) as session:
        jobs = add_sweep(session, *(job_spec(seed=n) for n in range(3)), job_spec(world_size=2))
        decide(session, jobs[0], 10.0)
        decide(session, jobs[1], 31.0, state=AttemptState.FAILED)
        decide(session, jobs[2], 500.0, state=AttemptState.LOST)
        decide(session, jobs[3], 60.0)
        sweep_id = sweep_of(session, jobs[0])
        [other] = add_sweep(session)
        decide(session, other, 99.0)
    with reading(engine) as session:
        assert paces(session, [sweep_id]) == {
            sweep_id: (
                JobPace(agent_count=1, job_count=2, mean_s=20.5),
                JobPace(agent_count=2, job_count=1, mean_s=60.0),
            )
        }
        assert paces(session, []) == {}


def test_the_latest_paces_are_of_all_sweeps(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for duration_s in (10.0, 20.0):
            [job_id] = add_sweep(session)
            decide(session, job_id, duration_s)
    with reading(engine) as session:
        assert latest_paces(session) == (JobPace(agent_count=1, job_count=2, mean_s=15.0),)


def test_nothing_has_a_pace_before_anything_is_over(engine: sa.Engine) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        add_attempt(session, job_id, state=AttemptState.LOST)
        add_attempt(session, job_id, state=AttemptState.RUNNING, number=2)
        sweep_id = sweep_of(session, job_id)
    with reading(engine) as session:
        assert paces(session, [sweep_id]) == {}
        assert latest_paces(session) == ()


def test_what_is_left_is_what_waits_and_what_runs(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        first = add_sweep(
            session, *(job_spec(seed=n) for n in range(4)), job_spec(world_size=2, seed=9)
        )
        decide(session, first[0], 12.0)
        add_attempt(session, first[1], ["a1"], state=AttemptState.RUNNING)
        second = add_sweep(session)
        done = add_sweep(session)
        decide(session, done[0], 1.0)
        ids = [sweep_of(session, jobs[0]) for jobs in (first, second)]
        pause_sweep(session, ids[1])
    with reading(engine) as session:
        loads = sweep_loads(session, now=NOW + seconds(5))
        assert list(loads) == ids
        assert loads[ids[0]].active == (UnfinishedJob(agent_count=1, elapsed_s=5.0),)
        assert sorted(loads[ids[0]].waiting, key=lambda job: job.agent_count) == [
            UnfinishedJob(agent_count=1, job_count=2),
            UnfinishedJob(agent_count=2, job_count=1),
        ]
        assert loads[ids[0]].paces == (JobPace(agent_count=1, job_count=1, mean_s=12.0),)
        assert (loads[ids[0]].held_count, loads[ids[1]].held_count) == (0, 1)
        assert list(sweep_loads(session, now=NOW, sweep_ids=[ids[1]])) == [ids[1]]
        assert sweep_loads(session, now=NOW, sweep_ids=[]) == {}
