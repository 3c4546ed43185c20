"""Agents that sign have queues of their own, and one that floods its own costs nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator

import pytest
import redis
import sqlalchemy as sa

from farm.broker.celery_app import (
    HEARTBEAT_TASK,
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    REPORTS_TASK,
    open_client,
    own_queue,
)
from farm.broker.health_records import COLLECTOR, HealthReporter, read_health_records
from farm.broker.sending import OWN_KEPT, Sender
from farm.broker.task_message import read_task
from farm.collector.agent_queues import AgentQueues
from farm.collector.ingest import MessageFilter, read_beat
from farm.collector.quotas import HEARTBEAT_QUOTAS, REPORT_QUOTAS, Quota, Quotas, make_quotas
from farm.errors import Unreachable
from farm.keys.keyring import Keyring
from farm.messages.agent_keys import derive_key
from farm.messages.envelope import seal
from farm.messages.signing import MessageDirection, sign
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import writing
from tests.factories import NOW, heartbeat
from tests.fakes.server import wait_until
from tests.services.redis_server import RedisServer

AGENTS = ("a", "b")
OF_A = own_queue(HEARTBEATS_QUEUE, "a")
FLOOD = int(HEARTBEAT_QUOTAS["messages"].burst) + 100


@pytest.fixture
def client(broker: RedisServer) -> Iterator[redis.Redis]:
    with open_client(broker.url, timeout_s=60) as client:
        yield client


def own_queues(
    broker: RedisServer,
    *,
    agents: Callable[[], Collection[str]] = lambda: AGENTS,
    health: HealthReporter | None = None,
) -> AgentQueues:
    health = health or HealthReporter(COLLECTOR, broker.url)
    # Its clock stands still, so that no quota is made up for while a test runs.
    quotas = make_quotas(are_names_proven=True, clock=lambda: 0.0)
    return AgentQueues(broker.url, agents=agents, quotas=quotas, health=health)


def signed_beat(agent_id: str, counter: int = 1) -> dict[str, object]:
    beat = seal(heartbeat(agent_id=agent_id, counter=counter))
    key = derive_key(bytes(32), agent_id, 1)
    to_server = MessageDirection.TO_SERVER
    return sign(beat, [key], agent_id=agent_id, direction=to_server, kind=HEARTBEAT_TASK)


def counters(client: redis.Redis) -> list[int]:
    """Return which beats wait for the collector, the next one first."""
    found = []
    for text in reversed(client.lrange(HEARTBEATS_QUEUE, 0, -1)):
        read = read_task(text, queue=HEARTBEATS_QUEUE)
        assert read is not None
        envelope = read[1]
        assert isinstance(envelope, dict)
        found.append(json.loads(envelope["signed"])["counter"])
    return found


def test_what_an_agent_signs_goes_by_its_own_queue_and_keeps_its_order(
    broker: RedisServer, client: redis.Redis
) -> None:
    sender = Sender(broker.url)
    for counter in (1, 2, 3):
        sender.publish_heartbeat(signed_beat("a", counter))
    sender.close()
    assert (client.llen(HEARTBEATS_QUEUE), client.llen(OF_A), client.llen(OWN_QUEUES_WAKE_KEY)) == (
        0,
        3,
        3,
    )
    own_queues(broker).turn()
    assert counters(client) == [1, 2, 3]
    assert (client.llen(OF_A), client.llen(OWN_QUEUES_WAKE_KEY)) == (0, 0)


def test_an_agent_adds_no_more_than_a_few_while_no_collector_runs(
    broker: RedisServer, client: redis.Redis
) -> None:
    sender = Sender(broker.url)
    for counter in range(OWN_KEPT + 10):
        sender.publish_heartbeat(signed_beat("a", counter))
    sender.close()
    assert client.llen(OF_A) == OWN_KEPT


def test_a_flood_is_brought_up_to_its_quota_and_the_rest_is_deleted(
    broker: RedisServer, client: redis.Redis
) -> None:
    queues = own_queues(broker)
    for _ in range(FLOOD):
        client.lpush(OF_A, *["{}"] * 50)
        queues.turn()
        assert client.llen(OF_A) <= OWN_KEPT
    assert client.llen(HEARTBEATS_QUEUE) <= FLOOD
    client.delete(HEARTBEATS_QUEUE)
    client.lpush(OF_A, *["{}"] * 50)
    sender = Sender(broker.url)
    sender.publish_heartbeat(signed_beat("b", 7))
    sender.close()
    queues.turn()
    assert counters(client) == [7]


def test_no_more_is_brought_at_once_than_the_quota_has_left(
    broker: RedisServer, client: redis.Redis
) -> None:
    """Others wait behind what is brought, and each of these may be as long as a beat can be."""
    now_s = 0.0
    quotas = {
        task: Quotas({"messages": Quota(3, 60), "bytes": Quota(2**20, 60)}, clock=lambda: now_s)
        for task in (HEARTBEAT_TASK, REPORTS_TASK)
    }
    health = HealthReporter(COLLECTOR, broker.url)
    queues = AgentQueues(broker.url, agents=lambda: AGENTS, quotas=quotas, health=health)
    brought = []
    for _ in range(8):
        client.lpush(OF_A, *["{}"] * 50)
        queues.turn()
        brought.append(client.llen(HEARTBEATS_QUEUE))
        client.delete(HEARTBEATS_QUEUE)
        now_s += 0.5
    assert brought == [3, 1, 0, 1, 0, 1, 0, 1]


def test_an_enormous_message_uses_up_the_quota(broker: RedisServer, client: redis.Redis) -> None:
    queues = own_queues(broker)
    own = own_queue(REPORTS_QUEUE, "a")
    client.lpush(own, "x" * int(2 * REPORT_QUOTAS["bytes"].burst))
    queues.turn()
    client.lpush(own, "{}")
    queues.turn()
    assert (client.llen(own), client.llen(REPORTS_QUEUE)) == (0, 1)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_what_goes_by_an_own_queue_is_charged_once(
    engine: sa.Engine, broker: RedisServer, client: redis.Redis
) -> None:
    with writing(engine) as session:
        add_agent_key(session, "a", now=NOW)
    eight = {"messages": Quota(8, 1), "bytes": Quota(2**20, 1)}
    quotas = {
        HEARTBEAT_TASK: Quotas(eight, clock=lambda: 0.0),
        REPORTS_TASK: Quotas(REPORT_QUOTAS),
    }
    health = HealthReporter(COLLECTOR, broker.url)
    queues = AgentQueues(broker.url, agents=lambda: AGENTS, quotas=quotas, health=health)
    keyring = Keyring(engine, bytes(32))
    message_filter = MessageFilter(
        keyring=keyring, health=health, answer=lambda answers: None, quotas=quotas
    )
    sender = Sender(broker.url)

    def heard(counter: int) -> list[int]:
        sender.publish_heartbeat(signed_beat("a", counter))
        queues.turn()
        texts = client.rpop(HEARTBEATS_QUEUE, 10) or []
        assert isinstance(texts, list)
        brought = [read_task(text, queue=HEARTBEATS_QUEUE) for text in texts]
        beats = message_filter.accept(
            HEARTBEAT_TASK, [read[1] for read in brought if read], read_beat
        )
        return [beat.counter for beat in beats]

    assert [heard(counter) for counter in range(1, 9)] == [[counter] for counter in range(1, 9)]
    assert heard(9) == []
    assert quotas[HEARTBEAT_TASK].dropped() == {"a": 1}
    sender.close()


def test_the_doctor_learns_who_floods(broker: RedisServer, client: redis.Redis) -> None:
    health = HealthReporter(COLLECTOR, broker.url)
    queues = own_queues(broker, health=health)
    client.lpush(OF_A, *["{}"] * 500)
    queues.turn()
    health.start()
    [shown] = wait_until(lambda: read_health_records(client), "a record")
    health.stop()
    assert shown.held_back == {"a": 500 - 10 - OWN_KEPT}


def test_while_the_collector_is_behind_nothing_is_brought_and_no_queue_grows(
    broker: RedisServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.collector.agent_queues.HEARTBEATS_KEPT", 5)
    queues = own_queues(broker)
    client.lpush(HEARTBEATS_QUEUE, *["{}"] * 5)
    client.lpush(OF_A, "first", *["later"] * 100)
    queues.turn()
    assert (client.llen(HEARTBEATS_QUEUE), client.llen(OF_A)) == (5, OWN_KEPT)
    client.delete(HEARTBEATS_QUEUE)
    queues.turn()
    assert client.lindex(HEARTBEATS_QUEUE, -1) == b"first"


def test_no_queue_grows_while_the_store_is_away(broker: RedisServer, client: redis.Redis) -> None:
    is_away = False

    def agents() -> tuple[str, ...]:
        if is_away:
            raise Unreachable("the store is away")
        return AGENTS

    queues = own_queues(broker, agents=agents)
    queues.turn()
    is_away = True
    client.lpush(OF_A, *["{}"] * 500)
    queues.turn()
    assert client.llen(OF_A) == OWN_KEPT


def test_a_queue_that_holds_another_type_costs_no_other_agent_anything(
    broker: RedisServer, client: redis.Redis
) -> None:
    client.set(OF_A, "of another program")
    sender = Sender(broker.url)
    sender.publish_heartbeat(signed_beat("b", 7))
    sender.close()
    own_queues(broker).turn()
    assert counters(client) == [7]


def test_a_turn_is_taken_when_woken(broker: RedisServer, client: redis.Redis) -> None:
    queues = own_queues(broker)
    queues.start()
    sender = Sender(broker.url)
    sender.publish_heartbeat(signed_beat("a", 3))
    wait_until(lambda: client.llen(HEARTBEATS_QUEUE) == 1, "it is brought")
    broker.kill()
    broker.start()
    sender.publish_heartbeat(signed_beat("b", 4))
    wait_until(lambda: counters(client) == [4], "it is brought")
    sender.close()
    queues.stop()


def test_a_collector_knows_how_many_there_are(broker: RedisServer) -> None:
    with broker.client() as client:
        client.set("farm.alive.collector.elsewhere.1", "{}", px=60_000)
        client.set("farm.alive.scheduler.elsewhere.2", "{}", px=60_000)
    health = HealthReporter(COLLECTOR, broker.url)
    health.start()
    wait_until(lambda: health.process_count == 2, "itself and the one elsewhere")
    health.stop()
