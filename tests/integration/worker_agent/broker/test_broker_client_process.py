"""The broker client as the agent sees it: it brings commands, hangs, goes deaf, and is replaced."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterator
from functools import partial

import psutil
import pytest

from farm.broker.celery_app import REPORTS_QUEUE, agent_queue
from farm.broker.sending import Sender
from farm.messages.commands import StopAttempt
from farm.messages.envelope import seal
from tests.services.redis_server import RedisServer
from worker_agent.broker import broker_client_supervisor as supervisor_module
from worker_agent.broker.broker_client_supervisor import (
    DEAF_AFTER_S,
    BrokerClientProcess,
    BrokerClientSupervisor,
)
from worker_agent.config import AgentConfig, load_config
from worker_agent.supervisor.events import (
    AgentEvent,
    BrokerClientGone,
    BrokerClientReady,
    CommandArrived,
    OrderDone,
)

STOP = StopAttempt(token=1, reason="test")


@pytest.fixture
def config(broker: RedisServer) -> AgentConfig:
    return load_config({"AGENT_ID": "vm-1", "FARM_BROKER_URL": broker.url})


@pytest.fixture
def events() -> queue.SimpleQueue[AgentEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def broker_client(
    config: AgentConfig, events: queue.SimpleQueue[AgentEvent]
) -> Iterator[BrokerClientProcess]:
    broker_client = BrokerClientProcess(1, config=config, purge=True, post=events.put)
    yield broker_client
    broker_client.kill()


class KeptBrokerClient:
    """A supervisor of the broker client in a loop like that of the agent's supervisor."""

    def __init__(self, config: AgentConfig) -> None:
        self._events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        self.supervisor = BrokerClientSupervisor(config, self._events.put)
        self.seen: list[AgentEvent] = []
        self.ahead_s = 0.0  # as if so much more time had passed

    def run_until(self, condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.seen
            self.supervisor.tick(now=time.monotonic() + self.ahead_s)
            try:
                event = self._events.get(timeout=0.05)
            except queue.Empty:
                continue
            assert isinstance(
                event, BrokerClientReady | CommandArrived | OrderDone | BrokerClientGone
            )
            self.supervisor.handle(event, now=time.monotonic() + self.ahead_s)
            self.seen.append(event)

    def is_ready_again(self, *, since: int) -> bool:
        return self.ready_count() > since

    def ready_count(self) -> int:
        return sum(isinstance(event, BrokerClientReady) for event in self.seen)


@pytest.fixture
def kept(config: AgentConfig) -> Iterator[KeptBrokerClient]:
    kept = KeptBrokerClient(config)
    yield kept
    kept.supervisor.stop()


def only_broker_client() -> psutil.Process:
    children = psutil.Process().children()
    [broker_client] = [
        child for child in children if "worker_agent.broker.broker_client" in child.cmdline()
    ]
    return broker_client


def test_commands_to_an_earlier_life_are_dropped_and_later_ones_arrive(
    broker: RedisServer, config: AgentConfig, events: queue.SimpleQueue[AgentEvent]
) -> None:
    sender = Sender(broker.url)
    sender.send([("vm-1", StopAttempt(token=7, reason="from before the restart"))])
    broker_client = BrokerClientProcess(1, config=config, purge=True, post=events.put)
    try:
        assert events.get(timeout=60) == BrokerClientReady(broker_client=1)
        sender.send([("vm-1", STOP)])
        arrived = events.get(timeout=60)
        assert isinstance(arrived, CommandArrived)
        assert (arrived.name, arrived.envelope) == ("stop_attempt", seal(STOP))
        broker_client.acknowledge(arrived.line)
        order = broker_client.publish("reports", {"any": "thing"})
        assert events.get(timeout=60) == OrderDone(broker_client=1, order=order, error=None)
        with broker.client() as client:
            assert client.llen(REPORTS_QUEUE) == 1
            assert client.llen(agent_queue("vm-1")) == 0
    finally:
        broker_client.kill()
        sender.close()


def test_the_broker_client_logs_in_the_form_that_its_agent_logs_in(
    broker: RedisServer,
    events: queue.SimpleQueue[AgentEvent],
    capfd: pytest.CaptureFixture[str],
) -> None:
    sender = Sender(broker.url)
    sender.send([("vm-1", StopAttempt(token=7, reason="from before the restart"))])
    sender.close()
    environ = {"AGENT_ID": "vm-1", "FARM_BROKER_URL": broker.url, "FARM_LOG_FORMAT": "json"}
    broker_client = BrokerClientProcess(1, config=load_config(environ), purge=True, post=events.put)
    try:
        assert events.get(timeout=60) == BrokerClientReady(broker_client=1)
    finally:
        broker_client.kill()
    [line] = [line for line in capfd.readouterr().err.splitlines() if "were dropped" in line]
    assert json.loads(line)["message"] == "commands from before the restart were dropped: 1"


def test_a_broker_that_is_away_does_not_end_the_broker_client(
    broker: RedisServer, broker_client: BrokerClientProcess, events: queue.SimpleQueue[AgentEvent]
) -> None:
    assert events.get(timeout=60) == BrokerClientReady(broker_client=1)
    broker.kill()
    order = broker_client.publish("heartbeats", {})
    done = events.get(timeout=60)
    assert isinstance(done, OrderDone)
    assert done.order == order
    assert done.error is not None
    assert "does not answer" in done.error
    broker.start()
    broker_client.publish("heartbeats", {})
    done = events.get(timeout=60)
    assert isinstance(done, OrderDone)
    assert done.error is None


def test_a_broker_client_that_does_not_read_is_given_up(
    broker_client: BrokerClientProcess, events: queue.SimpleQueue[AgentEvent]
) -> None:
    assert events.get(timeout=60) == BrokerClientReady(broker_client=1)
    psutil.Process(broker_client.pid).suspend()
    broker_client.publish("reports", {"long": "x" * 4_000_000})
    assert events.get(timeout=60) == BrokerClientGone(broker_client=1)


def test_a_hung_broker_client_is_replaced(
    kept: KeptBrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "PING_EVERY_S", 0.1)
    monkeypatch.setattr(supervisor_module, "PING_LIMIT_S", 1.0)
    kept.run_until(lambda: kept.ready_count() == 1)
    only_broker_client().suspend()
    kept.run_until(lambda: kept.ready_count() == 2)
    assert any(isinstance(event, BrokerClientGone) for event in kept.seen)


def test_a_broker_client_that_hears_nothing_is_replaced_ever_more_rarely(
    kept: KeptBrokerClient, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        count = kept.ready_count()
        kept.run_until(partial(kept.is_ready_again, since=count))
        kept.ahead_s += 10 * DEAF_AFTER_S
    limits = [r.args for r in caplog.records if "heard nothing" in r.getMessage()]
    assert limits == [(DEAF_AFTER_S,), (2 * DEAF_AFTER_S,)]


def test_an_order_waits_for_the_one_of_its_sort_before_it(kept: KeptBrokerClient) -> None:
    assert not kept.supervisor.can_publish("reports")
    kept.run_until(lambda: kept.ready_count() == 1)
    kept.supervisor.publish("reports", {})
    assert not kept.supervisor.can_publish("reports")
    assert kept.supervisor.can_publish("heartbeats")
    kept.run_until(lambda: kept.supervisor.can_publish("reports"))


@pytest.mark.parametrize(
    "garbage",
    [
        *("", "no JSON", "5", "[]", "{}", "[" * 100_000),
        '{"headers": {}, "properties": []}',
        # Celery ends over this one, and puts it back as it goes.
        '{"body": "W10=", "headers": {"task": []}, "properties": {"delivery_tag": "t", '
        '"delivery_info": {"exchange": "", "routing_key": "agent.vm-1"}}}',
    ],
)
def test_garbage_in_its_queue_does_not_end_the_broker_client(
    broker: RedisServer,
    broker_client: BrokerClientProcess,
    events: queue.SimpleQueue[AgentEvent],
    garbage: str,
) -> None:
    assert events.get(timeout=60) == BrokerClientReady(broker_client=1)
    with broker.client() as client:
        client.lpush(agent_queue("vm-1"), garbage)
    sender = Sender(broker.url)
    sender.send([("vm-1", STOP)])
    sender.close()
    arrived = events.get(timeout=60)
    assert isinstance(arrived, CommandArrived), arrived
    broker_client.acknowledge(arrived.line)
