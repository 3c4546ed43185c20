"""Publishing to a broker that is well, frozen or gone; waking the scheduler; the purge."""

from __future__ import annotations

import time

import pytest
from kombu import pools

from farm.broker.celery_app import (
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    REPORTS_TASK,
    agent_queue,
    command_task,
)
from farm.broker.sending import Sender
from farm.broker.wake_up import WakeReason, WakeUp
from farm.collector.batch_reader import ArrivalRate, BatchReader
from farm.errors import Unreachable
from farm.messages.commands import StopAttempt
from farm.messages.envelope import seal
from tests.services.redis_server import RedisServer

STOP = StopAttempt(token=1, reason="test")


def taken_with(reader: BatchReader) -> list[object]:
    """Return what is taken along with a message in hand."""
    with reader.around("in hand") as envelopes:
        assert envelopes[0] == "in hand"
        return envelopes[1:]


def test_a_frozen_broker_is_unreachable_until_it_goes_on(broker: RedisServer) -> None:
    sender = Sender(broker.url)
    sender.send([("a", STOP)])
    broker.freeze()
    with pytest.raises(Unreachable, match="start Redis there"):
        sender.send([("a", STOP)])
    broker.thaw()
    sender.send([("a", STOP)])
    sender.close()


def test_a_restarted_broker_takes_the_next_message_at_once(broker: RedisServer) -> None:
    sender = Sender(broker.url)
    sender.send([("a", STOP)])
    broker.kill()
    with pytest.raises(Unreachable):
        sender.send([("a", STOP)])
    broker.start()
    sender.send([("a", STOP)])
    assert broker.client().llen(agent_queue("a")) == 1
    sender.close()


def test_heartbeats_that_nobody_takes_do_not_fill_the_broker(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.broker.sending.HEARTBEATS_KEPT", 3)
    sender = Sender(broker.url)
    for number in range(5):
        sender.publish_heartbeat({"number": number})
    with broker.client() as client:
        waiting = client.lrange(HEARTBEATS_QUEUE, 0, -1)
    assert len(waiting) == 3
    sender.close()


def test_reports_that_nobody_takes_do_not_fill_the_broker(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came first stays: it has waited for longest, and its agent would only repeat it."""
    monkeypatch.setattr("farm.broker.sending.REPORTS_KEPT", 3)
    sender = Sender(broker.url)
    for number in range(5):
        sender.publish_reports({"number": number})
    reader = BatchReader(broker.url, queue=REPORTS_QUEUE, task=REPORTS_TASK, arrivals=ArrivalRate())
    assert taken_with(reader) == [{"number": n} for n in range(3)]
    sender.close()


def test_what_comes_in_the_moment_that_is_waited_where_many_come_is_taken_along(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(broker.url)
    arrivals = ArrivalRate()
    reader = BatchReader(broker.url, queue=REPORTS_QUEUE, task=REPORTS_TASK, arrivals=arrivals)

    def sleep(wait_s: float) -> None:
        if wait_s > 0:
            sender.publish_reports({"came in": wait_s})

    monkeypatch.setattr("farm.collector.batch_reader.time.sleep", sleep)
    assert taken_with(reader) == []
    now_s = time.monotonic()
    for after_s in (1, 2):
        arrivals.came(1000, queue=REPORTS_QUEUE, is_full=False, now_s=now_s + after_s)
    assert taken_with(reader) == [{"came in": arrivals.gather_s}]
    sender.close()


def test_a_new_client_adds_nothing_to_a_full_queue_and_goes_on_once_it_is_emptied(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farm.broker.sending.REPORTS_KEPT", 2)
    for number in range(4):
        pools.reset()  # type: ignore[no-untyped-call] # as a new process has it
        sender = Sender(broker.url)
        sender.publish_reports({"number": number})
    sender.publish_reports({"number": 4})
    with broker.client() as client:
        assert client.llen(REPORTS_QUEUE) == 2
        client.delete(REPORTS_QUEUE)
        sender.publish_reports({"number": 5})
        assert client.llen(REPORTS_QUEUE) == 1
    sender.close()


def test_what_waits_is_taken_in_order_and_what_is_not_ours_is_dropped(broker: RedisServer) -> None:
    sender = Sender(broker.url)
    reader = BatchReader(broker.url, queue=REPORTS_QUEUE, task=REPORTS_TASK, arrivals=ArrivalRate())
    with broker.client() as client:
        sender.publish_reports({"number": 1})
        client.lpush(REPORTS_QUEUE, "[", '{"headers": {}}')
        client.lpush(REPORTS_QUEUE, "[" * 100_000)
        sender.publish_heartbeat({"beat": 1})
        client.rename(HEARTBEATS_QUEUE, "aside")
        client.lmove("aside", REPORTS_QUEUE, "RIGHT", "LEFT")
        sender.publish_reports({"number": 2})
        taken: list[object] = []
        while client.exists(REPORTS_QUEUE):
            taken += taken_with(reader)
        assert taken == [{"number": 1}, {"number": 2}]
    sender.close()


def test_without_a_broker_the_message_in_hand_is_all(broker: RedisServer) -> None:
    reader = BatchReader(broker.url, queue=REPORTS_QUEUE, task=REPORTS_TASK, arrivals=ArrivalRate())
    broker.kill()
    assert taken_with(reader) == []


def test_commands_for_many_go_out_in_order(broker: RedisServer) -> None:
    sender = Sender(broker.url)
    stops = [StopAttempt(token=token, reason="test") for token in range(3)]
    sender.send([(agent_id, stop) for stop in stops for agent_id in "ab"])
    for agent_id in "ab":
        task = command_task("stop_attempt")
        reader = BatchReader(
            broker.url, queue=agent_queue(agent_id), task=task, arrivals=ArrivalRate()
        )
        assert taken_with(reader) == [seal(stop) for stop in stops]
    sender.close()


def test_a_queue_is_purged(broker: RedisServer) -> None:
    sender = Sender(broker.url)
    for _ in range(3):
        sender.send([("a", STOP)])
    assert sender.purge(agent_queue("a")) == 3
    assert sender.purge(agent_queue("a")) == 0
    sender.close()


@pytest.mark.parametrize("keeps", [False, True])
def test_many_signals_wake_once(broker: RedisServer, keeps: bool) -> None:
    wake = WakeUp(broker.url, keeps_connections=keeps)
    assert wake.send()
    assert wake.send()
    assert wake.wait(5)
    assert not wake.wait(0.1)


@pytest.mark.parametrize("first", list(WakeReason))
@pytest.mark.parametrize("then", list(WakeReason))
def test_a_request_is_not_lost_among_other_signals(
    broker: RedisServer, first: WakeReason, then: WakeReason
) -> None:
    wake = WakeUp(broker.url)
    wake.send(first)
    wake.send(then)
    assert wake.wait(5) is (
        WakeReason.REQUESTED if WakeReason.REQUESTED in (first, then) else WakeReason.CHANGED
    )
    assert wake.wait(0.1) is None


def test_a_bell_that_keeps_its_connections_survives_its_broker(broker: RedisServer) -> None:
    wake = WakeUp(broker.url, keeps_connections=True)
    assert wake.send()
    assert wake.wait(5)
    broker.freeze()
    assert not wake.send()
    broker.thaw()
    # The answer that came too late was that of the signal before.
    assert wake.send()
    assert wake.wait(5)
    broker.kill()
    assert not wake.send()
    assert not wake.wait(0.1)
    broker.start()
    assert wake.send()
    assert wake.wait(5)


def test_a_bell_that_keeps_its_connections_has_one_for_each_use(broker: RedisServer) -> None:
    before = broker.client().info("stats")["total_connections_received"]
    wake = WakeUp(broker.url, keeps_connections=True)
    for _ in range(5):
        assert wake.send()
        assert wake.wait(5)
    after = broker.client().info("stats")["total_connections_received"]
    assert after - before <= 3  # one of them to ask this
