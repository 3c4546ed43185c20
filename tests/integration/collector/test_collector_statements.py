"""What a portion asks of the store does not grow with what it holds."""

from __future__ import annotations

import itertools

import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.reports import LogPart, ReportBatch, ReportBody
from farm.store.agents.heartbeats import record_heartbeats
from farm.store.engine import reading, writing
from farm.store.reports.logs import log_ends
from farm.store.reports.reports import store_batches
from farm.store.series.series import epochs_of
from farm.store.tables import AgentRow
from tests.factories import NOW, add_agent, add_attempt, add_job, agent_facts, job_spec, seconds
from tests.integration.store.reports.test_stolen_agent import epoch
from tests.integration.store.reports.test_store_reports import MEASURED, report
from tests.stored.store_statements import statements


def add_gangs(engine: sa.Engine, count: int, *, state: AttemptState) -> list[tuple[str, int, int]]:
    """Add gangs of two; return (agent id, token, rank) of everybody."""
    members = []
    with writing(engine) as session:
        first = session.scalar(sa.select(sa.func.count()).select_from(AgentRow)) or 0
        for number in range(first, first + 2 * count, 2):
            gang = [f"agent-{number}", f"agent-{number + 1}"]
            for agent_id in gang:
                add_agent(session, agent_id, machine_id=agent_id)
            token = add_attempt(
                session, add_job(session, job_spec(world_size=2)), gang, state=state
            )
            members += [(agent_id, token, rank) for rank, agent_id in enumerate(gang)]
    return members


def selects(texts: list[str]) -> int:
    return len([text for text in texts if text.startswith("SELECT")])


def test_ranks_that_pass_a_barrier_are_looked_up_together(engine: sa.Engine) -> None:
    def count(gang_count: int) -> tuple[int, int]:
        batches = [
            ReportBatch(
                agent_id=agent_id,
                generation="g",
                reports=(report(1, MEASURED, token=token, rank=rank),),
            )
            for agent_id, token, rank in add_gangs(engine, gang_count, state=AttemptState.MEASURING)
        ]
        with statements(engine) as seen, writing(engine) as session:
            stored = store_batches(session, batches, now=NOW)
        return selects(seen), sum(one.moves_attempts for one in stored)

    few, moved = count(1)
    assert moved == 1, "the second of its two ranks is the last"
    assert count(8) == (few, 8)


def test_beats_of_leased_agents_are_looked_up_together(engine: sa.Engine) -> None:
    def count(gang_count: int) -> int:
        beats = [
            Heartbeat(
                agent_id=agent_id,
                boot_id="boot",
                counter=5,
                state=AgentState.IDLE,
                agent_time_s=NOW.timestamp(),
                echo=BeatEcho(server_time_s=NOW.timestamp(), elapsed_s=0.0),
                highest_token=0,
                serving_token=None,
                facts=agent_facts(machine_id=agent_id),
            )
            for agent_id, _, _ in add_gangs(engine, gang_count, state=AttemptState.PREPARING)
        ]
        with statements(engine) as seen, writing(engine) as session:
            effects = record_heartbeats(session, beats, now=NOW, lease=seconds(20))
        assert not any(effect.is_stale for effect in effects)
        return selects(seen)

    assert count(8) == count(1)


def test_a_batch_of_small_reports_is_stored_with_a_few_statements(engine: sa.Engine) -> None:
    """A stolen agent may send thousands of them, which would keep the others waiting."""
    with writing(engine) as session:
        spec = job_spec(steps=None, epochs=1000)
        token = add_attempt(
            session,
            add_job(session, spec),
            [add_agent(session, "a")],
            state=AttemptState.RUNNING,
        )
    numbers = itertools.count(1)

    def count(size: int) -> int:
        first = next(numbers) * 1000
        bodies: list[ReportBody] = []
        for place in range(first, first + size):
            bodies.append(LogPart(first_character=place, text="x"))
            bodies.append(epoch(place % 1000))
        reports = tuple(
            report(number, body, token=token, rank=0) for number, body in enumerate(bodies, first)
        )
        batch = ReportBatch(agent_id="a", generation=f"g{first}", reports=reports)
        with statements(engine) as seen, writing(engine) as session:
            [stored] = store_batches(session, [batch], now=NOW)
        assert stored.late_count == 0
        return len(seen)

    # Of many rows there may be several statements, of a thousand each.
    assert count(400) <= count(4) + 2
    with reading(engine) as session:
        [log] = log_ends(session, token, ranks=[0]).values()
        assert log.text == "x" * 404
        assert len(epochs_of(session, token, rank=0)) == 400
