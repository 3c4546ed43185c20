"""Jobs that no agent can serve, and long sweeps, leave idle agents to the jobs behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.configuration.spec import NetworkProfile
from farm.gang.lifecycle import AttemptState
from farm.gang.snapshots import LiveAgent
from farm.scheduler.placing import PlacingState, place_jobs
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.gangs.lengths import unfinished_cells
from farm.store.queue import waiting
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.queue.waiting_reasons import waiting_reasons
from farm.store.sweeps.sweeps import pause_sweep
from farm.store.tables import AgentRow, AttemptRow, JobRow
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_job,
    add_sweep,
    agent_facts,
    job_spec,
    seconds,
)
from tests.stored.two_agents import RULES

MOST = 6
OLD = NOW - seconds(500)


@pytest.fixture(autouse=True)
def _few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_LOOKED_AT", MOST)


@pytest.fixture(params=["kept", "read"])
def known(request: pytest.FixtureRequest) -> PlacingState:
    """A scheduler's, with a queue that it keeps or reads anew."""
    return PlacingState(queue=WaitingQueue(epoch=NOW) if request.param == "kept" else None)


def _older(session: Session, *, count: int = 2 * MOST, priority: int = 0, **spec: object) -> int:
    """Add a sweep that came before everybody else; return its id."""
    ids = add_sweep(session, *(job_spec(seed=n, **spec) for n in range(count)))
    session.execute(
        sa.update(JobRow).where(JobRow.id.in_(ids)).values(due_at=OLD, priority=priority)
    )
    return session.get_one(JobRow, ids[0]).sweep_id


def _many_sweeps(session: Session) -> None:
    for n in range(2 * MOST):
        _older(session, count=1, labels={"owner": f"user{n}"})


def _pausing(session: Session) -> None:
    sweep_id = _older(session)
    later = sa.update(JobRow).where(JobRow.sweep_id == sweep_id)
    session.execute(later.values(due_at=NOW + seconds(1), attempt_count=1))


def _drained(session: Session) -> None:
    add_agent(session, "drained", facts=agent_facts(machine_id="m1", labels={"kind": "drained"}))
    session.get_one(AgentRow, "drained").is_drained = True
    _older(session, labels={"kind": "drained"})


def _for_agents_at_work(session: Session) -> None:
    add_agent(session, "large", facts=agent_facts(machine_id="m2", labels={"kind": "large"}))
    job_id = add_job(session, job_spec(labels={"kind": "large"}))
    add_attempt(session, job_id, ["large"], state=AttemptState.RUNNING)
    _older(session, priority=5, labels={"kind": "large"})


HELD_UP: dict[str, Callable[[Session], object]] = {
    "wider than the farm": lambda s: _older(s, world_size=4),
    "wider and more important": lambda s: _older(s, world_size=4, priority=9),
    "a label that nobody has": lambda s: _older(s, labels={"zone": "moon"}),
    "an emulator that nobody has": lambda s: _older(
        s, world_size=2, network=NetworkProfile(one_way_delay_s=0.02)
    ),
    "a framework that nobody has": lambda s: _older(s, strategy="torch_ddp", world_size=2),
    "an interface that nobody has": lambda s: _older(s, world_size=2, interface="infiniband"),
    "a paused sweep": lambda s: pause_sweep(s, _older(s)),
    "a pause before the next attempt": _pausing,
    "drained agents": _drained,
    "agents at work": _for_agents_at_work,
    "many sweeps": _many_sweeps,
}


@pytest.mark.parametrize("before", HELD_UP.values(), ids=HELD_UP.keys())
def test_what_cannot_be_served_now_does_not_hold_up_what_can(
    engine: sa.Engine, known: PlacingState, before: Callable[[Session], object]
) -> None:
    with writing(engine) as session:
        for name in ("a", "b"):
            add_agent(session, name, machine_id=name)
        before(session)
        [behind] = add_sweep(session, job_spec())
    place_jobs(engine, now=NOW, rules=RULES, known=known)
    with reading(engine) as session:
        assert session.get_one(JobRow, behind).attempt_id is not None


@pytest.mark.parametrize("sweep_count", [1, 3, 2 * MOST])
def test_each_sweep_has_its_turn_whatever_the_lengths_of_the_others(
    engine: sa.Engine, known: PlacingState, sweep_count: int
) -> None:
    """With an agent for each sweep, each has one job at work."""
    with writing(engine) as session:
        for n in range(min(sweep_count + 1, MOST)):
            add_agent(session, f"a{n}", machine_id=f"m{n}")
        long = _older(session, count=3 * MOST)
        for _ in range(sweep_count):
            add_sweep(session, job_spec())
    place_jobs(engine, now=NOW, rules=RULES, known=known)
    with reading(engine) as session:
        at_work = session.scalars(
            sa.select(JobRow.sweep_id).join(AttemptRow, AttemptRow.id == JobRow.attempt_id)
        ).all()
    assert len(at_work) == len(set(at_work)) == min(sweep_count + 1, MOST)
    assert long in at_work


def test_more_important_jobs_of_a_kind_are_not_hidden_by_many_sweeps(
    engine: sa.Engine, known: PlacingState
) -> None:
    with writing(engine) as session:
        for n in range(3):
            add_agent(session, f"a{n}", machine_id=f"m{n}")
        for _ in range(2 * MOST):
            _older(session, count=1)
        urgent = [add_job(session, job_spec(seed=n), priority=1) for n in range(3)]
    place_jobs(engine, now=NOW, rules=RULES, known=known)
    with reading(engine) as session:
        assert all(session.get_one(JobRow, job_id).attempt_id for job_id in urgent)


def test_the_lengths_of_short_sweeps_behind_long_ones_are_asked_for(engine: sa.Engine) -> None:
    behind = job_spec(steps=77)
    with writing(engine) as session:
        ids = add_sweep(session, *(job_spec(steps=n + 1) for n in range(9)))
        add_sweep(session, behind)
        found = unfinished_cells(session, limit=4)
        assert len(found) == 4
        assert behind.cell_hash in found
        assert ids[0] in found.values()


def test_a_change_of_the_farm_alone_changes_what_is_looked_at(engine: sa.Engine) -> None:
    queue = WaitingQueue(epoch=NOW)
    with writing(engine) as session:
        add_agent(session, "a", machine_id="a")
        _older(session, world_size=2, count=1)

    def count() -> int | None:
        with reading(engine) as session:
            agents = live_agents(session, now=NOW, live_within_s=20.0)
            found = queue.jobs(session, now=NOW, agents=agents, expected_s={})
        return None if found is None else len(found)

    assert count() == 0
    with writing(engine) as session:
        add_agent(session, "b", machine_id="b")
    assert count() == 1


class _Counted(list[LiveAgent]):
    """Agents that count how often somebody has gone through them."""

    passes = 0

    def __iter__(self) -> Iterator[LiveAgent]:
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("ask", ["reasons", "queue"])
def test_agents_are_gone_through_once_and_not_for_each_kind_of_job(
    engine: sa.Engine, ask: str
) -> None:
    passes = []
    for n in range(2):
        with writing(engine) as session:
            add_agent(session, f"agent{n}", heartbeat_at=NOW)
            for m in range(1 + 2 * MOST * n):
                _older(session, count=1, labels={"owner": f"user{n}.{m}"})
            agents = _Counted(live_agents(session, now=NOW, live_within_s=60))
            if ask == "reasons":
                waiting_reasons(
                    session,
                    now=NOW,
                    agents=agents,
                    reserve_after_s=300,
                    idle_reason=lambda: None,
                )
            else:
                waiting.waiting_jobs(session, now=NOW, agents=agents)
            passes.append(agents.passes)
    assert passes[0] == passes[1]
