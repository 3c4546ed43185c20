"""The queue that a scheduler keeps is the one of the store, whatever happens in between."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import time

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState, JobState
from farm.gang.rendezvous import AttemptEnd
from farm.gang.retries import RetryPolicy
from farm.gang.snapshots import WaitingJob
from farm.placement.scheduling import Placement
from farm.store.engine import reading, writing
from farm.store.gangs.clock_steps import follow_clock
from farm.store.gangs.decisions import end_attempts
from farm.store.gangs.leases import lease_gangs
from farm.store.queue.waiting import waiting_jobs
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.sweeps.jobs import request_cancel_job, retry_job
from farm.store.sweeps.sweeps import pause_sweep, resume_sweep
from farm.store.tables import AgentRow, AttemptRow, JobRow, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_job, add_sweep, job_spec, seconds
from tests.stored.store_statements import statements

LEASE = dt.timedelta(hours=1)
POLICY = RetryPolicy(max_attempts=3, wait_s=20.0)


def kept(
    queue: WaitingQueue, session: Session, *, now: dt.datetime, **lengths: float
) -> list[WaitingJob]:
    """Return what the queue says, with the waits as of now."""
    found = queue.jobs(session, now=now, expected_s=lengths)
    assert found is not None
    more_s = queue.waited_more_s(now)
    return [dataclasses.replace(job, waited_s=job.waited_s + more_s) for job in found]


def change(session: Session, rng: random.Random, *, now: dt.datetime) -> None:
    """Do something to the queue."""
    states = {row.id: row.state for row in session.execute(sa.select(JobRow.id, JobRow.state))}

    def some(*wanted: JobState) -> int | None:
        found = [job_id for job_id, state in states.items() if state in wanted]
        return rng.choice(found) if found else None

    match rng.randrange(8):
        case 0:
            specs = [job_spec(repetition=n) for n in range(rng.randrange(1, 4))]
            for new_id in add_sweep(session, *specs):
                job = session.get_one(JobRow, new_id)
                # The server's clock may have been ahead.
                job.priority, job.due_at = rng.randrange(2), now + seconds(rng.choice((0, 600)))
        case 1 if (job_id := some(JobState.WAITING)) is not None:
            request_cancel_job(session, job_id, now=now)
        case 2 if (job_id := some(JobState.CANCELLED, JobState.FAILED)) is not None:
            retry_job(session, job_id, now=now)
        case 3:
            sweep = session.get(SweepRow, rng.randrange(1, 4))
            if sweep is not None and sweep.is_paused:
                resume_sweep(session, sweep.id, budget_machine_s=None, now=now)
            elif sweep is not None:
                pause_sweep(session, sweep.id)
        case 4 | 5 if (job_id := some(JobState.WAITING)) is not None:
            free = session.scalars(
                sa.select(AgentRow.id).where(AgentRow.attempt_id.is_(None))
            ).first()
            if free is not None:
                session.get_one(AgentRow, free).unclean_token = None
                lease_gangs(session, [Placement(job_id, (free,))], now=now, lease=LEASE)
        case 6:
            active = (
                sa.select(AttemptRow.id)
                .where(AttemptRow.ended_at.is_(None))
                .order_by(AttemptRow.id)
            )
            token = session.scalars(active).first()
            if token is not None:
                end = AttemptEnd(state=rng.choice((AttemptState.LOST, AttemptState.FAILED)))
                end_attempts(session, {token: end}, now=now, policy=POLICY)
                of_it = sa.update(AgentRow).where(AgentRow.unclean_token == token)
                session.execute(of_it.values(unclean_token=None))
        case 7:
            follow_clock(session, now=now, step_s=-600.0, lease=LEASE, policy=POLICY)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_stores_whatever_happens(engine: sa.Engine, seed: int) -> None:
    rng, now = random.Random(seed), NOW
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        for agent_id in ("a", "b", "c"):
            add_agent(session, agent_id, machine_id=agent_id)
    for _ in range(40):
        now += seconds(rng.choice((1, 1, 30)))
        for _ in range(rng.randrange(1, 4)):
            with writing(engine) as session:
                change(session, rng, now=now)
        with reading(engine) as session:
            assert kept(queue, session, now=now) == waiting_jobs(session, now=now)


def test_what_has_not_changed_is_not_read_again(engine: sa.Engine) -> None:
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        job_ids = add_sweep(session, *(job_spec(seed=n) for n in range(5)))
        add_agent(session, "a")
    with reading(engine) as session:
        kept(queue, session, now=NOW)
    with writing(engine) as session:
        lease_gangs(session, [Placement(job_ids[2], ("a",))], now=NOW, lease=LEASE)
    with reading(engine) as session, statements(engine) as seen:
        found = kept(queue, session, now=NOW + seconds(5))
    assert [job.job_id for job in found] == [i for i in job_ids if i != job_ids[2]]
    assert [job.waited_s for job in found] == [5.0] * 4
    assert len(seen) == 2, seen  # which jobs wait, and which sweeps are paused
    with writing(engine) as session:
        [more] = add_sweep(session, job_spec(seed=9))
    with reading(engine) as session, statements(engine) as seen:
        assert kept(queue, session, now=NOW + seconds(5))[-1].job_id == more
    assert len(seen) == 3, seen  # what is new, and nothing else


def test_a_job_that_waits_again_is_found_at_once(engine: sa.Engine) -> None:
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        first, second = add_sweep(session, job_spec(seed=1), job_spec(seed=2))
    with reading(engine) as session:
        assert [job.job_id for job in kept(queue, session, now=NOW)] == [first, second]
    with writing(engine) as session:
        request_cancel_job(session, first, now=NOW)
        retry_job(session, first, now=NOW + seconds(1))
    with reading(engine) as session:
        later = kept(queue, session, now=NOW + seconds(2))
        assert later == waiting_jobs(session, now=NOW + seconds(2))
        assert [job.job_id for job in later] == [second, first]


def test_lengths_are_taken_over_where_they_differ(engine: sa.Engine) -> None:
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        cell = session.get_one(JobRow, add_job(session)).cell_hash
    lengths_s = []
    for lengths in ({}, {cell: 100.0}, {cell: 104.0}, {cell: 120.0}, {}):
        with reading(engine) as session:
            [job] = kept(queue, session, now=NOW, **lengths)
        lengths_s.append(job.expected_s)
    assert lengths_s == [None, 100.0, 100.0, 120.0, None]


def test_a_queue_too_long_to_be_kept_has_no_version(engine: sa.Engine) -> None:
    queue = WaitingQueue(epoch=NOW, most_kept=1)
    with writing(engine) as session:
        add_job(session)
    with reading(engine) as session:
        kept(queue, session, now=NOW)
    assert queue.version is not None
    with writing(engine) as session:
        add_job(session)
    with reading(engine) as session:
        assert queue.jobs(session, now=NOW, expected_s={}) is None
    assert queue.version is None


def test_who_has_measured_a_cell_is_believed_for_a_while_and_found_out_again(
    engine: sa.Engine,
) -> None:
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        first, *_ = add_sweep(session, *(job_spec(repetition=n, seed=n) for n in range(3)))
        add_agent(session, "a")
        add_agent(session, "b")
        add_attempt(session, first, ["a"], state=AttemptState.SUCCEEDED)

    def measured_by() -> tuple[list[dict[str, int]], bool]:
        with reading(engine) as session, statements(engine) as seen:
            found = kept(queue, session, now=NOW)
        return [dict(job.measured_by) for job in found], any("fingerprint" in text for text in seen)

    assert measured_by() == ([{"a": 1}] * 2, True)
    deadline = time.monotonic() + 60.0
    while measured_by() != ([{"a": 1}] * 2, False):
        assert time.monotonic() < deadline, "it takes longer to find out than to ask again"
    with writing(engine) as session:
        add_attempt(session, first, ["b"], state=AttemptState.SUCCEEDED, number=2)
    while measured_by()[0] != [{"a": 1, "b": 1}] * 2:
        assert time.monotonic() < deadline
