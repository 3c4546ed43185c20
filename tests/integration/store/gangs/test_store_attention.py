"""Which attempts a round looks at: every one of which something may have to be decided."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState, RankPhase
from farm.store.engine import reading, writing
from farm.store.gangs.decisions import attempts_to_decide
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow
from tests.factories import NOW, add_agent, add_attempt, add_job, job_spec, seconds

END_S = 60.0


def add_running(session: Session, *, state: AttemptState = AttemptState.RUNNING) -> int:
    """Add an attempt of two ranks that train; return its token."""
    count = session.scalar(sa.select(sa.func.count()).select_from(AgentRow)) or 0
    agents = [add_agent(session, f"a{count + i}") for i in range(2)]
    job_id = add_job(session, job_spec(world_size=2, time_limit_s=100.0))
    return add_attempt(session, job_id, agents, state=state, phase=RankPhase.STARTED)


def looked_at(engine: sa.Engine, *, after_s: float = 1.0) -> list[int]:
    with reading(engine) as session:
        return attempts_to_decide(session, now=NOW + seconds(after_s), end_s=END_S)


def test_an_attempt_at_work_is_left_alone(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_running(session)
    assert looked_at(engine) == []


@pytest.mark.parametrize("state", [s for s in AttemptState if s in ACTIVE_ATTEMPT_STATES])
def test_every_attempt_on_its_way_is_looked_at_and_none_that_is_over(
    engine: sa.Engine, state: AttemptState
) -> None:
    with writing(engine) as session:
        token = add_running(session, state=state)
        add_running(session, state=AttemptState.LOST)
    assert looked_at(engine) == ([] if state is AttemptState.RUNNING else [token])


@pytest.mark.parametrize(
    "change",
    [
        {"job": {"cancel_requested": True}},
        {"rank": {"phase": RankPhase.ENDED}},
        {"agent": {"lease_expires_at": NOW + seconds(1)}},
        {"agent": {"lease_expires_at": None}},
        {"agent": {"attempt_id": None}},
        {"agent": {"attempt_id": 10_000}},
        {"job": {"spec": {"time_limit_s": "none"}}},
        {"job": {"spec": {}}},
    ],
    ids=str,
)
def test_what_may_end_an_attempt_makes_a_round_look(
    engine: sa.Engine, change: dict[str, dict[str, Any]]
) -> None:
    with writing(engine) as session:
        add_running(session)
        token = add_running(session)
        rank = session.get_one(RankRow, (token, 1))
        rows = {
            "job": session.get_one(JobRow, session.get_one(AttemptRow, token).job_id),
            "rank": rank,
            "agent": session.get_one(AgentRow, rank.agent_id),
        }
        for row, values in change.items():
            for column, value in values.items():
                setattr(rows[row], column, value)
    assert looked_at(engine) == [token]


def test_an_attempt_beyond_its_time_limit_is_looked_at(engine: sa.Engine) -> None:
    with writing(engine) as session:
        token = add_running(session)
        for agent in session.scalars(sa.select(AgentRow)):
            agent.lease_expires_at = NOW + seconds(1000)
    assert looked_at(engine, after_s=100.0 + END_S - 0.1) == []
    assert looked_at(engine, after_s=100.0 + END_S) == [token]
