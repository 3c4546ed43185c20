"""Agents in the order that people ask for, and what one agent has done."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from farm.errors import NotFound
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.messages.agents import AgentState
from farm.messages.reports import RankEnded
from farm.messages.trainer_lines import Failure, FailureKind
from farm.store.agents.agents import (
    AgentOrder,
    agent_count,
    agent_page,
    agents_of_machine,
    attempt_state_counts,
    find_agent,
    ranks_of,
    spool_position,
)
from farm.store.agents.control_runs import agent_runs
from farm.store.engine import reading, writing
from farm.store.reports.late_reports import late_count
from farm.store.tables import AgentRow, AttemptRow, LateReport, RankRow, SpoolPosition
from farm.values.codec import to_json
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, job_spec, seconds

LIVE_SINCE = NOW - seconds(20)


@pytest.fixture
def agents(engine: sa.Engine) -> None:
    """A busy one, one with a clock far behind, a quiet one, one that is lost, one never heard."""
    with writing(engine) as session:
        add_agent(session, "busy", clock_offset_s=0.5, heartbeat_at=NOW - seconds(3))
        add_agent(session, "behind", clock_offset_s=-9.0, heartbeat_at=NOW - seconds(2))
        add_agent(session, "quiet", clock_offset_s=None, heartbeat_at=NOW - seconds(10))
        add_agent(session, "a-lost", clock_offset_s=99.0, heartbeat_at=NOW - seconds(21))
        add_agent(session, "b-never", heartbeat_at=None)
        add_attempt(session, add_job(session), ["busy"], state=AttemptState.RUNNING)


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (AgentOrder.NAME, ["behind", "busy", "quiet", "a-lost", "b-never"]),
        (AgentOrder.WORK, ["busy", "behind", "quiet", "a-lost", "b-never"]),
        (AgentOrder.HEARTBEAT, ["b-never", "a-lost", "quiet", "busy", "behind"]),
        (AgentOrder.CLOCK, ["behind", "busy", "quiet", "a-lost", "b-never"]),
    ],
)
def test_agents_come_in_the_order_asked_for(
    engine: sa.Engine, order: AgentOrder, expected: list[str]
) -> None:
    with reading(engine) as session:
        assert agent_count(session) == 5
        pages = [
            agent_page(session, order, live_since=LIVE_SINCE, offset=offset, limit=2)
            for offset in (0, 2, 4)
        ]
    assert [agent.id for page in pages for agent in page] == expected


def test_an_agent_is_found_by_its_name_or_is_not_there(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", facts=agent_facts(machine_id="m1"))
        add_agent(session, "a2", facts=agent_facts(machine_id="m1"))
        add_agent(session, "b1", facts=agent_facts(machine_id="m2"))
    with reading(engine) as session:
        assert find_agent(session, "a1").machine_id == "m1"
        assert agents_of_machine(session, "m1", limit=9) == ["a1", "a2"]
        with pytest.raises(NotFound, match="agent 'a3' does not exist"):
            find_agent(session, "a3")


def test_the_ranks_of_an_agent_are_told_with_how_they_ended(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            add_agent(session, agent_id)
        spec = job_spec(world_size=2, global_batch_size=64)
        job_id = add_job(session, spec)
        failed = add_attempt(session, job_id, ["a2", "a1"], state=AttemptState.FAILED)
        attempt = session.get_one(AttemptRow, failed)
        attempt.reason, attempt.ended_at = "rank 1 has no memory left", NOW + seconds(30)
        own = session.get_one(RankRow, (failed, 1))
        ended = RankEnded(
            result=None,
            failure=Failure(kind=FailureKind.OUT_OF_MEMORY, message="killed"),
            timed_begun_s=None,
            log_tail="a long log",
        )
        own.phase, own.control_s = RankPhase.ENDED, 0.25
        own.ended = to_json(ended)  # type: ignore[assignment] # a table
        void = add_attempt(session, add_job(session), ["a1"], state=AttemptState.VOID)
        session.get_one(RankRow, (void, 0)).disturbed_by = "cpu_steal"
        add_attempt(session, add_job(session), ["a1"], state=AttemptState.RUNNING)
    with reading(engine) as session:
        running, voided, lost = ranks_of(session, "a1", limit=9)
        assert (running.state, running.ended_at) == (AttemptState.RUNNING, None)
        assert (voided.token, voided.disturbed_by) == (void, "cpu_steal")
        assert (lost.job_id, lost.rank, lost.agent_count) == (job_id, 1, 2)
        assert (lost.own_failure, lost.reason) == ("out_of_memory", "rank 1 has no memory left")
        assert (lost.ended_at - lost.leased_at, lost.control_s) == (seconds(30), 0.25)
        assert (lost.strategy, lost.global_batch_size) == ("mwms_ring", 64)
        assert [r.token for r in ranks_of(session, "a1", before_token=void, limit=9)] == [failed]
        assert ranks_of(session, "a2", limit=9)[0].own_failure is None
        counts = attempt_state_counts(session, "a1", limit=9)
        assert counts == dict.fromkeys(
            (AttemptState.RUNNING, AttemptState.FAILED, AttemptState.VOID), 1
        )
        assert attempt_state_counts(session, "a1", limit=1) == {AttemptState.RUNNING: 1}


def test_the_control_runs_of_an_agent_are_told_with_their_circumstances(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        for agent_id, machine_id in (("a1", "m1"), ("a2", "m1"), ("b1", "m2")):
            add_agent(session, agent_id, facts=agent_facts(machine_id=machine_id))
        for gang, control_s in ((["a1"], 1.0), (["a1", "a2"], 2.0), (["a1", "b1"], None)):
            job_id = add_job(session, job_spec(world_size=len(gang)))
            token = add_attempt(session, job_id, gang, state=AttemptState.SUCCEEDED)
            session.get_one(RankRow, (token, 0)).control_s = control_s
        other = to_json(agent_facts().hardware)
        assert isinstance(other, dict)
        token = add_attempt(session, add_job(session), ["a1"], state=AttemptState.SUCCEEDED)
        last = session.get_one(RankRow, (token, 0))
        last.control_s, last.hardware = 4.0, {**other, "cpu_model": "Another CPU"}
    with reading(engine) as session:
        runs = agent_runs(session, "a1", limit=9)
        assert [(run.control_s, run.neighbour_count) for run in runs] == [
            (1.0, 1),
            (2.0, 2),
            (4.0, 1),
        ]
        assert runs[0].kind == runs[1].kind != runs[2].kind
        assert runs[0].at == NOW
        assert [run.control_s for run in agent_runs(session, "a1", limit=1)] == [4.0]
        assert agent_runs(session, "b1", limit=9) == []


def test_late_reports_and_the_newest_spool_are_the_agents_own(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", state=AgentState.SPOOL_FULL)
        for agent_id, generation, number, at in (
            ("a1", "old", 900, NOW),
            ("a1", "new", 7, NOW + seconds(1)),
            ("a2", "new", 8, NOW + seconds(2)),
        ):
            session.add(
                SpoolPosition(
                    agent_id=agent_id, generation=generation, confirmed_number=number, updated_at=at
                )
            )
            session.add(
                LateReport(
                    agent_id=agent_id,
                    generation=generation,
                    number=number,
                    token=1,
                    rank=0,
                    kind="samples",
                    body={},
                    received_at=at,
                    reason="its attempt is over",
                )
            )
    with reading(engine) as session:
        position = spool_position(session, "a1")
        assert position is not None
        assert (position.generation, position.confirmed_number) == ("new", 7)
        assert spool_position(session, "a3") is None
        assert [late_count(session, agent_id=name) for name in ("a1", "a3")] == [2, 0]
        assert session.get_one(AgentRow, "a1").attempt_id is None
