"""What a control run is compared with: the same agent's, under the same circumstances."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState, RankPhase
from farm.measuring.control_run import PAST_COUNT
from farm.store.agents.control_runs import control_runs
from farm.store.engine import writing
from farm.store.tables import RankRow
from farm.values.codec import to_json
from tests.factories import add_agent, add_attempt, add_job, agent_facts, job_spec


def add_run(session: Session, *agent_ids: str, control_s: float | None = 1.0) -> int:
    """Add an attempt that was lost, with the same control run on each of its agents."""
    job_id = add_job(session, job_spec(world_size=len(agent_ids)))
    token = add_attempt(
        session, job_id, agent_ids, state=AttemptState.LOST, phase=RankPhase.MEASURED
    )
    for rank in range(len(agent_ids)):
        session.get_one(RankRow, (token, rank)).control_s = control_s
    return token


def past_of(session: Session, token: int, rank: int = 0) -> tuple[float, ...]:
    session.flush()
    return control_runs(session, [token])[token, rank].past_s


def test_an_agents_past_are_its_own_earlier_runs_the_last_first(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", facts=agent_facts(machine_id="m1"))
        add_agent(session, "a2", facts=agent_facts(machine_id="m2"))
        for control_s in (1.0, 2.0, None, 3.0):
            add_run(session, "a1", control_s=control_s)
        add_run(session, "a2", control_s=9.0)
        token = add_run(session, "a1", control_s=4.0)
        run = control_runs(session, [token])[token, 0]
        assert (run.control_s, run.past_s) == (4.0, (3.0, 2.0, 1.0))


def test_ranks_of_one_attempt_have_each_their_own_past(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for number in (1, 2):
            add_agent(session, f"a{number}", facts=agent_facts(machine_id=f"m{number}"))
        add_run(session, "a1", control_s=1.0)
        add_run(session, "a2", control_s=2.0)
        token = add_run(session, "a2", "a1", control_s=3.0)
        assert past_of(session, token, 0) == (2.0,)
        assert past_of(session, token, 1) == (1.0,)


def test_runs_on_other_hardware_are_no_past(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        old = add_run(session, "a1", control_s=1.0)
        other = to_json(agent_facts().hardware)
        assert isinstance(other, dict)
        session.get_one(RankRow, (old, 0)).hardware = {**other, "cpu_model": "Another CPU"}
        add_run(session, "a1", control_s=2.0)
        assert past_of(session, add_run(session, "a1")) == (2.0,)


def test_runs_beside_other_ranks_on_the_machine_are_compared_among_themselves(
    engine: sa.Engine,
) -> None:
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            add_agent(session, agent_id, facts=agent_facts(machine_id="m1"))
        add_agent(session, "b1", facts=agent_facts(machine_id="m2"))
        add_run(session, "a1", control_s=1.0)
        add_run(session, "a1", "a2", control_s=2.0)
        add_run(session, "a1", "b1", control_s=3.0)
        assert past_of(session, add_run(session, "a1")) == (3.0, 1.0)
        assert past_of(session, add_run(session, "a1", "a2")) == (2.0,)


def test_the_past_is_as_long_as_it_is_looked_at_and_no_longer(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        for number in range(PAST_COUNT + 5):
            add_run(session, "a1", control_s=float(number))
        past = past_of(session, add_run(session, "a1"))
        assert past == tuple(float(n) for n in range(PAST_COUNT + 4, 4, -1))


def test_a_rank_that_has_not_run_it_has_none(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_agent(session, "a1")
        add_run(session, "a1")
        token = add_run(session, "a1", control_s=None)
        session.flush()
        assert control_runs(session, [token]) == {}
        assert control_runs(session, []) == {}
