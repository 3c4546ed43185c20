"""What the scheduler finds out beside its rounds, and what a round makes of it."""

import datetime as dt
from typing import Any

import pytest
import sqlalchemy as sa

from farm.configuration.spec import TCP_PROXY, UNTOUCHED, NetworkProfile
from farm.gang.lifecycle import AttemptState
from farm.gang.snapshots import GangAtWork
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.contracts import Objective, Question
from farm.recommend.prices import Prices
from farm.recommend.service import recommend
from farm.recommend.sweeps.expectation import expected, predicted_lengths_s
from farm.scheduler.outgoing import Rules
from farm.scheduler.placing import JobLengths, PlacingState
from farm.store.engine import reading, writing
from farm.store.gangs.lengths import gangs_at_work
from farm.store.queue.waiting import waiting_jobs
from farm.store.tables import AttemptRow, JobRow
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_job,
    add_measurement,
    add_sweep,
    job_spec,
    seconds,
)
from tests.fakes.step_times import FakeStepTimes
from tests.stored.scheduler_round import run_round

RULES = Rules(lease=dt.timedelta(seconds=20), reserve_after_s=60.0)


def test_the_gangs_at_work_are_told_with_their_age(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session, job_spec(strategy="mwms_ring", world_size=2))
        agents = [add_agent(session, name) for name in ("a", "b")]
        add_attempt(session, job_id, agents, state=AttemptState.RUNNING)
        add_agent(session, "c")
        job = session.get_one(JobRow, job_id)
        gangs = gangs_at_work(session, now=NOW + seconds(5), expected_s={job.cell_hash: 9.0})
    assert gangs == [
        GangAtWork(sweep_id=job.sweep_id, agent_ids=("a", "b"), age_s=5.0, expected_s=9.0)
    ]


def test_lengths_come_from_the_gangs_that_succeeded(engine: sa.Engine) -> None:
    with writing(engine) as session:
        done, _ = add_sweep(session, job_spec(steps=7), job_spec(steps=7, repetition=1))
        token = add_attempt(session, done, state=AttemptState.SUCCEEDED)
        session.get_one(AttemptRow, token).ended_at = NOW + seconds(33)
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
        sweep_id = session.get_one(JobRow, longer).sweep_id
    known = PlacingState({short.cell_hash: 1.0, long.cell_hash: 100.0})
    run_round(engine, now=NOW, rules=RULES, state=known)
    with reading(engine) as session:
        [attempt] = session.scalars(sa.select(AttemptRow)).all()
        assert attempt.job_id == longer
    assert known.last_starts == {sweep_id: NOW}


@pytest.mark.parametrize(
    ("network", "fields"),
    [
        (UNTOUCHED, {}),
        (UNTOUCHED, {"network": NetworkProfile(), "emulator": TCP_PROXY}),
        (f"cable+{TCP_PROXY}", {"interface": "cable", "emulator": TCP_PROXY, "delay": 0.02}),
        ("cable", {"interface": "cable"}),
        (TCP_PROXY, {"emulator": TCP_PROXY, "delay": 0.02}),
        ("tc_netem", {"delay": 0.02}),
        ("tc_netem", {}),
    ],
)
def test_a_gang_is_expected_to_take_what_the_same_gang_took(
    engine: sa.Engine, network: str, fields: dict[str, Any]
) -> None:
    """Whatever made the conditions of the network, or did not have to."""
    fields = dict(fields)
    if delay_s := fields.pop("delay", None):
        fields["network"] = NetworkProfile(one_way_delay_s=delay_s)
    gang = job_spec(strategy="mwms_ring", world_size=2, **fields)
    cache = RecommenderCache(Fits(FakeStepTimes.fit))
    with writing(engine) as session:
        job_id = add_job(session, gang)
        token = add_attempt(
            session, job_id, [add_agent(session, "a")], state=AttemptState.SUCCEEDED
        )
        session.get_one(AttemptRow, token).ended_at = NOW + seconds(33)
        for name in (network, None):  # and one machine, which has none
            add_measurement(
                session,
                f"of {name}",
                attempt_id=None if name is None else token,
                strategy="single" if name is None else "mwms_ring",
                world_size=1 if name is None else 2,
                network=name,
                one_way_delay_s=0.0 if name is None else delay_s or 0.0,
                step_time_s=0.1,
            )
    with reading(engine) as session:
        found = expected(session, [gang], prices=Prices(), cache=cache)
        lengths_s = predicted_lengths_s(session, {gang.cell_hash: gang}, cache=cache)
    assert found.unknown == {}
    assert lengths_s == pytest.approx({gang.cell_hash: 33.0})


@pytest.mark.parametrize("name", [UNTOUCHED, "tc_netem"])
def test_who_asks_for_a_network_by_its_emulator_is_answered(engine: sa.Engine, name: str) -> None:
    with writing(engine) as session:
        for count in (1, 2):
            strategy = "single" if count == 1 else "mwms_ring"
            network = None if count == 1 else name
            columns = {"strategy": strategy, "world_size": count, "network": network}
            add_measurement(session, f"of {count}", step_time_s=0.1, steps_per_epoch=9, **columns)
    question = Question(global_batch_size=32, networks=(name,))
    with reading(engine) as session:
        found = recommend(session, question=question, objective=Objective())
    assert sorted(option.world_size for option in found.options) == [1, 2]
    assert not any("only one machine" in warning for warning in found.warnings)
