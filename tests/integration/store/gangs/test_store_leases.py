"""Leases on a real database: whole gangs or nothing. Races are in test_store_races."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.configuration.spec import TENSORFLOW
from farm.errors import LeaseConflict
from farm.gang.lifecycle import JobState
from farm.messages.agents import AgentState
from farm.placement.agent_index import SHARES_CORES
from farm.placement.scheduling import Placement
from farm.store.engine import reading, writing
from farm.store.gangs.attempts import active_attempts, views_of
from farm.store.gangs.leases import lease_gangs
from farm.store.tables import AgentRow, JobRow, RankRow
from tests.factories import NOW, add_agent, add_sweep, agent_facts, job_spec

LEASE = dt.timedelta(seconds=20)


def lease(engine: sa.Engine, job_id: int, *agent_ids: str) -> int:
    with writing(engine) as session:
        leased = lease_gangs(session, [Placement(job_id, agent_ids)], now=NOW, lease=LEASE)
    if job_id in leased.conflicts:
        raise LeaseConflict(leased.conflicts[job_id])
    return leased.tokens[job_id]


def test_a_gang_is_leased_whole_and_its_job_with_it(engine: sa.Engine) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session, job_spec(world_size=2))
        add_agent(session, "a", facts=agent_facts(machine_id="m1"))
        add_agent(session, "b", facts=agent_facts(machine_id="m2"))
    token = lease(engine, job_id, "b", "a")
    with reading(engine) as session:
        job = session.get_one(JobRow, job_id)
        assert (job.state, job.attempt_id, job.attempt_count) == (JobState.LEASED, token, 1)
        agents = session.scalars(select(AgentRow)).all()
        assert {(a.attempt_id, a.lease_expires_at) for a in agents} == {(token, NOW + LEASE)}
        ranks = session.scalars(select(RankRow).order_by(RankRow.rank)).all()
        assert [r.agent_id for r in ranks] == ["b", "a"]


def test_what_was_just_leased_is_what_would_be_read(engine: sa.Engine) -> None:
    with writing(engine) as session:
        first, second = add_sweep(session, job_spec(world_size=2), job_spec(seed=1))
        for name in ("a", "b", "c"):
            labels = {"zone": f"zone of {name}"}
            add_agent(session, name, facts=agent_facts(machine_id=f"m{name}", labels=labels))
    placements = [Placement(first, ("b", "a")), Placement(second, ("c",))]
    with writing(engine) as session:
        leased = lease_gangs(session, placements, now=NOW, lease=LEASE)
        known = views_of(leased.attempts, now=NOW)
    with writing(engine) as session:
        read = active_attempts(session, list(leased.tokens.values()), now=NOW)
    assert len(known.attempts) == 2
    assert known == read


def test_of_gangs_leased_together_only_those_that_conflict_go_without(engine: sa.Engine) -> None:
    with writing(engine) as session:
        first, second, third, fourth = add_sweep(session, *(job_spec(seed=n) for n in range(4)))
        add_agent(session, "a", facts=agent_facts(machine_id="m1", cpus=(0, 1)))
        add_agent(session, "beside a", facts=agent_facts(machine_id="m1", cpus=(1,)))
        add_agent(session, "b", facts=agent_facts(machine_id="m2"))
        add_agent(session, "drained", facts=agent_facts(machine_id="m3"), is_drained=True)
    wanted = [
        Placement(first, ("a",)),
        Placement(second, ("beside a",)),
        Placement(third, ("drained",)),
        Placement(fourth, ("b",)),
    ]
    with writing(engine) as session:
        leased = lease_gangs(session, wanted, now=NOW, lease=LEASE)
        again = lease_gangs(session, [Placement(second, ("b",))], now=NOW, lease=LEASE)
    assert set(leased.tokens) == {first, fourth}
    assert set(leased.conflicts) == {second, third}
    assert set(again.conflicts) == {second}
    with reading(engine) as session:
        holders = dict(session.execute(select(AgentRow.id, AgentRow.attempt_id)).all())
        attempt_ids = select(JobRow.id, JobRow.attempt_id).where(JobRow.attempt_id.is_not(None))
        assert dict(session.execute(attempt_ids).all()) == leased.tokens
    assert holders == {
        "a": leased.tokens[first],
        "b": leased.tokens[fourth],
        "beside a": None,
        "drained": None,
    }


@pytest.mark.parametrize(
    "unfit",
    [
        {"unclean_token": 3},
        {"is_drained": True},
        {"state": AgentState.SPOOL_FULL},
        {"state": AgentState.LEAVING},
    ],
)
def test_one_unfit_agent_leaves_the_whole_gang_unleased(
    engine: sa.Engine, unfit: dict[str, Any]
) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session, job_spec(world_size=2))
        add_agent(session, "a", facts=agent_facts(machine_id="m1"))
        add_agent(session, "b", facts=agent_facts(machine_id="m2"), **unfit)
    with pytest.raises(LeaseConflict, match="only 1 of them"):
        lease(engine, job_id, "a", "b")
    with reading(engine) as session:
        assert session.get_one(JobRow, job_id).state is JobState.WAITING
        assert session.get_one(AgentRow, "a").attempt_id is None


def test_a_leased_agent_cannot_be_leased_again(engine: sa.Engine) -> None:
    with writing(engine) as session:
        first, second = add_sweep(session, job_spec(), job_spec(seed=1))
        add_agent(session, "a")
    lease(engine, first, "a")
    with pytest.raises(LeaseConflict):
        lease(engine, second, "a")


def test_ranks_of_one_gang_may_share_cores_if_all_of_them_say_so(engine: sa.Engine) -> None:
    with writing(engine) as session:
        pair, other = add_sweep(session, job_spec(world_size=2), job_spec())
        for agent_id in ("a", "b", "c"):
            facts = agent_facts(cpus=(0,), capabilities=(SHARES_CORES, TENSORFLOW))
            add_agent(session, agent_id, facts=facts)
        add_agent(session, "alone", facts=agent_facts(cpus=(0,)))
    for agent_ids in (("a", "alone"), ("alone", "a")):
        with pytest.raises(LeaseConflict, match="cores"):
            lease(engine, pair, *agent_ids)
    lease(engine, pair, "a", "b")
    for agent_id in ("c", "alone"):
        with pytest.raises(LeaseConflict, match="cores"):
            lease(engine, other, agent_id)


def test_an_agent_cannot_be_leased_while_another_one_uses_its_cores(engine: sa.Engine) -> None:
    """The scheduler that decided so had an older snapshot than the one that was quicker."""
    with writing(engine) as session:
        first, second, third = add_sweep(session, *(job_spec(seed=seed) for seed in range(3)))
        add_agent(session, "whole machine", facts=agent_facts(cpus=(0, 1)))
        add_agent(session, "first core", facts=agent_facts(cpus=(0,)))
        add_agent(session, "second core", facts=agent_facts(cpus=(1,)))
    lease(engine, first, "first core")
    with pytest.raises(LeaseConflict, match="cores"):
        lease(engine, second, "whole machine")
    lease(engine, third, "second core")


def test_a_gpu_is_leased_to_one_agent_at_a_time_even_of_those_that_share_cores(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        pair, first, second = add_sweep(
            session, job_spec(world_size=2), job_spec(), job_spec(seed=1)
        )
        for agent_id, gpu in (("a", "GPU-1"), ("b", "GPU-1"), ("c", "GPU-2")):
            facts = agent_facts(cpus=(0,), gpus=(gpu,), capabilities=(SHARES_CORES, TENSORFLOW))
            add_agent(session, agent_id, facts=facts)
        add_agent(session, "d", facts=agent_facts(cpus=(1,), gpus=("GPU-1",)))
        add_agent(session, "e", facts=agent_facts(cpus=(2,), gpus=("GPU-3",)))
    with pytest.raises(LeaseConflict, match="agent b: its cores or GPUs are taken"):
        lease(engine, pair, "a", "b")
    lease(engine, pair, "a", "c")
    with pytest.raises(LeaseConflict, match="agent d: its cores or GPUs are taken"):
        lease(engine, first, "d")
    lease(engine, second, "e")


def test_an_agent_that_fell_silent_before_it_was_clean_takes_no_cores(engine: sa.Engine) -> None:
    """It may never come back, and another one works in its place: the scheduler offers that one."""
    with writing(engine) as session:
        first, second = add_sweep(session, *(job_spec(seed=n) for n in range(2)))
        silent, beating = NOW - 2 * LEASE, NOW
        for machine_id, heartbeat_at in (("m1", silent), ("m2", beating)):
            facts = agent_facts(machine_id=machine_id, cpus=(0,))
            changes = {"unclean_token": 3, "heartbeat_at": heartbeat_at}
            add_agent(session, f"old {machine_id}", facts=facts, **changes)
            add_agent(session, f"new {machine_id}", facts=facts)
    lease(engine, first, "new m1")
    with pytest.raises(LeaseConflict, match="cores"):
        lease(engine, second, "new m2")
