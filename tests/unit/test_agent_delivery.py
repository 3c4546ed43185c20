"""Stop and wait: one batch under way, again after a growing pause, until it is confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.core.commands import Confirm
from worker_agent.delivery import LAST_PAUSE_S, SILENT_PAUSE_S, Delivery
from worker_agent.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", max_bytes=1_000_000)
    yield spool
    spool.close()


def add(spool: Spool, count: int) -> None:
    for _ in range(count):
        spool.append(1, rank=0, kind="samples", body={"samples": []})


def sent(delivery: Delivery, now: float, *, silent: bool = False) -> list[int]:
    batch = delivery.next_batch(now=now, server_is_silent=silent)
    return [report.number for report in batch.reports] if batch else []


def test_nothing_is_due_while_nothing_waits(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    assert delivery.is_empty
    assert sent(delivery, 0.0) == []
    assert delivery.due_in_s(now=0.0, server_is_silent=False) == float("inf")


def test_a_second_batch_waits_for_the_confirmation_of_the_first(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 2)
    assert sent(delivery, 0.0) == [1, 2]
    add(spool, 1)
    assert sent(delivery, 1.0) == []
    delivery.confirm(Confirm(generation=spool.generation, number=2))
    assert sent(delivery, 1.0) == [3]


def test_part_of_a_batch_confirmed_is_no_reason_to_send_the_rest_early(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 3)
    sent(delivery, 0.0)
    delivery.confirm(Confirm(generation=spool.generation, number=1))
    assert sent(delivery, 1.0) == []
    assert sent(delivery, 2.0) == [2, 3]


def test_the_pause_before_sending_again_doubles_up_to_its_limit(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 1)
    now, pauses = 0.0, []
    sent(delivery, now)
    for _ in range(6):
        pause_s = delivery.due_in_s(now=now, server_is_silent=False)
        assert sent(delivery, now + pause_s - 0.01) == []
        now += pause_s
        assert sent(delivery, now) == [1]
        pauses.append(pause_s)
    assert pauses == [2, 4, 8, 16, LAST_PAUSE_S, LAST_PAUSE_S]


def test_a_silent_server_is_not_flooded_and_gets_everything_once_it_is_back(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 1)
    sent(delivery, 0.0)
    assert sent(delivery, SILENT_PAUSE_S - 1, silent=True) == []
    delivery.start_over()
    assert sent(delivery, SILENT_PAUSE_S - 1, silent=False) == [1]
