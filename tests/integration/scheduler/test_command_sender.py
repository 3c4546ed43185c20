"""What the scheduler's two loops do while the broker takes nothing."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import agent_queue, open_client
from farm.broker.sending import Sender
from farm.embedded.redis import free_port
from farm.gang.lifecycle import JobState
from farm.scheduler.main import advance_once, place_once
from farm.scheduler.outgoing import CommandSender
from farm.scheduler.placing import PlacingState
from farm.store.engine import reading, writing
from farm.store.tables import JobRow
from tests.factories import NOW, add_agent, add_attempt, add_job, add_sweep, job_spec, seconds
from tests.services.redis_server import RedisServer
from tests.stored.two_agents import RULES


def turn_once(engine: sa.Engine, sender: CommandSender, *, after_s: float) -> None:
    now = NOW + seconds(after_s)
    advance_once(engine, sender, now=now, rules=RULES)
    place_once(engine, sender, now=now, rules=RULES, known=PlacingState())


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_nobody_sets_out_while_gangs_on_their_way_are_told_nothing(
    engine: sa.Engine, broker: RedisServer
) -> None:
    with writing(engine) as session:
        add_agent(session, "at work", machine_id="m1")
        add_attempt(session, add_job(session), ["at work"])  # and has not been told so
        add_agent(session, "idle", machine_id="m2")
        [job_id] = add_sweep(session, job_spec())

    def state() -> JobState:
        with reading(engine) as session:
            return session.get_one(JobRow, job_id).state

    nowhere = CommandSender(Sender(f"redis://127.0.0.1:{free_port()}/0"))
    turn_once(engine, nowhere, after_s=1.0)
    assert nowhere.is_away
    assert state() is JobState.WAITING

    here = CommandSender(Sender(broker.url))
    turn_once(engine, here, after_s=10.0)
    assert not here.is_away
    assert state() is JobState.LEASED
    with open_client(broker.url, timeout_s=10) as client:
        waiting = [client.llen(agent_queue(name)) for name in ("at work", "idle")]
    assert waiting == [1, 1]
