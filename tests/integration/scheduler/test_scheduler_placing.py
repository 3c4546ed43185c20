"""A scheduler that keeps the queue decides again only where there is a reason."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState
from farm.messages.commands import StartRank
from farm.scheduler import placing
from farm.scheduler.outgoing import Outgoing
from farm.scheduler.placing import PlacingState, StartPace, place_jobs
from farm.store.engine import reading, writing
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.tables import AgentRow, JobRow, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_sweep, job_spec, seconds
from tests.stored.store_statements import statements
from tests.stored.two_agents import RULES


def test_what_could_not_be_placed_is_decided_again_once_something_has_changed(
    engine: sa.Engine,
) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW))

    def placed(after_s: float) -> tuple[list[Outgoing], int]:
        with statements(engine) as seen:
            sent = place_jobs(engine, now=NOW + seconds(after_s), rules=RULES, known=known)
        return sent, len([text for text in seen if text.startswith("SELECT")])

    with writing(engine) as session:
        [job_id] = add_sweep(session, job_spec(world_size=2))
        add_agent(session, "a", machine_id="a")
        add_agent(session, "unclean", machine_id="unclean", unclean_token=1)
    nothing, first = placed(0.0)
    again, second = placed(0.5)
    assert (nothing, again) == ([], [])
    assert second < first, "who is at work is not even looked up"
    assert placed(1.5)[1] > second, "time alone may be a reason, too"

    with writing(engine) as session:
        add_agent(session, "b", machine_id="b")
    sent, _ = placed(1.6)
    assert [type(one.command) for one in sent] == [StartRank, StartRank]
    with reading(engine) as session:
        [token] = set(
            session.scalars(sa.select(AgentRow.attempt_id).where(AgentRow.id != "unclean"))
        )
    assert token is not None
    with writing(engine) as session:
        add_agent(session, "c", machine_id="c")
        add_sweep(session, job_spec())
    assert placed(1.7)[0] != [], f"beside job {job_id}"


def test_gangs_start_at_their_pace_and_none_is_forgotten(engine: sa.Engine) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW), pace=StartPace(per_s=1.0, burst=2))

    def started(after_s: float) -> int:
        now = NOW + seconds(after_s)
        return len(place_jobs(engine, now=now, rules=RULES, known=known))

    with writing(engine) as session:
        for number in range(5):
            add_sweep(session, job_spec())
            add_agent(session, f"agent-{number}", machine_id=f"machine-{number}")
    assert started(0.0) == 2
    assert started(0.1) == 0
    assert started(1.1) == 1
    assert started(5.0) == 2


def test_a_dozen_gangs_cost_as_many_statements_as_two(engine: sa.Engine) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW))

    def statement_count(gang_count: int, *, after_s: float) -> int:
        with writing(engine) as session:
            for number in range(gang_count):
                add_sweep(session, job_spec(world_size=2))
                for rank in range(2):
                    add_agent(session, name := f"{after_s}-{number}-{rank}", machine_id=name)
        with statements(engine) as seen:
            sent = place_jobs(engine, now=NOW + seconds(after_s), rules=RULES, known=known)
        assert len(sent) == 2 * gang_count
        # SQLite is given the rows of a write one by one; there is no way to a server, though.
        is_local = engine.dialect.name == "sqlite"
        return len([text for text in seen if not is_local or text.startswith("SELECT")])

    assert statement_count(12, after_s=1) == statement_count(2, after_s=0)


def test_a_gang_that_cannot_be_leased_keeps_no_other_from_its_own(engine: sa.Engine) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW), pace=StartPace(per_s=0.001, burst=2))
    with writing(engine) as session:
        for name in ("a", "b"):
            add_agent(session, name, machine_id=name)
        odd, plain = add_sweep(session, job_spec(), job_spec(seed=1))
        # The number of its next attempt is taken, which no version would have done.
        add_attempt(session, odd, state=AttemptState.LOST, number=2)
    sent = place_jobs(engine, now=NOW, rules=RULES, known=known)
    assert [getattr(one.command, "job_id", None) for one in sent] == [plain]
    assert known.pace.may_start(now_s=NOW.timestamp()), "who was not leased has not started"


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_gang_that_others_have_overtaken_has_not_started(engine: sa.Engine) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW), pace=StartPace(per_s=0.001, burst=1))
    with writing(engine) as session:
        add_sweep(session, job_spec())
        add_agent(session, "a", machine_id="a")
    with engine.connect() as other, other.begin():
        other.execute(sa.select(AgentRow.id).with_for_update())
        assert place_jobs(engine, now=NOW, rules=RULES, known=known) == []
    assert len(place_jobs(engine, now=NOW, rules=RULES, known=known)) == 1


@pytest.mark.parametrize("took_s", [0.001, 30.0])
def test_a_budget_is_not_added_up_again_at_once(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    known = PlacingState(queue=WaitingQueue(epoch=NOW))
    clock = itertools.count(0.0, took_s)
    monkeypatch.setattr(placing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with writing(engine) as session:
        for number in range(3):
            add_sweep(session, job_spec(seed=number))
            add_agent(session, f"agent-{number}", machine_id=f"machine-{number}")
        session.execute(sa.update(SweepRow).values(budget_machine_s=3600.0))
    looked: list[int] = []
    for after_s in (0.0, 0.0, 60.0):
        with writing(engine) as session:
            add_sweep(session, job_spec(seed=9))
            name = f"more-{len(looked)}"
            add_agent(session, name, machine_id=name, heartbeat_at=NOW + seconds(after_s))
            sweep_id = session.scalar(sa.select(sa.func.max(SweepRow.id)))
            session.execute(sa.update(JobRow).values(sweep_id=1, priority=sweep_id))
        with statements(engine) as seen:
            assert place_jobs(engine, now=NOW + seconds(after_s), rules=RULES, known=known)
        looked.append(sum("sum(" in text and "attempts" in text for text in seen))
    assert looked == [1, 0, 1]
