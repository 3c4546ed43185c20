"""Stop and wait: one batch under way, again after a growing pause, until it is confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.messages.commands import Confirm
from worker_agent.spool.delivery import (
    BATCH_REPORTS,
    GATHER_S,
    MOST_GATHERED,
    MOST_REST_S,
    MOST_S,
    REST_RATIO,
    SILENT_PAUSE_S,
    Delivery,
)
from worker_agent.spool.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", max_bytes=1_000_000)
    yield spool
    spool.close()


def add(spool: Spool, count: int, *, is_urgent: bool = True) -> None:
    for _ in range(count):
        spool.append(1, rank=0, kind="samples", body={"samples": []}, is_urgent=is_urgent)


def sent(delivery: Delivery, now: float, *, silent: bool = False) -> list[int]:
    batch = delivery.next_batch(now=now, server_is_silent=silent)
    return [report.number for report in batch.reports] if batch else []


def confirm(delivery: Delivery, spool: Spool, number: int, *, now: float) -> None:
    delivery.confirm(Confirm(generation=spool.generation, number=number), now=now)


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
    confirm(delivery, spool, 2, now=1.0)
    assert sent(delivery, 1.0) == [3]


def test_part_of_a_batch_confirmed_is_no_reason_to_send_the_rest_early(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 3)
    sent(delivery, 0.0)
    confirm(delivery, spool, 1, now=1.0)
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
    assert pauses == [2, 4, 8, 16, MOST_S, MOST_S]


def test_a_server_that_is_slow_is_not_asked_twice_for_everything(spool: Spool) -> None:
    """Where confirmations take 5 s, two batches are repeated until that is known."""
    delivery = Delivery(spool, agent_id="a")
    now, repeated = 0.0, []
    for number in range(1, 21):
        add(spool, 1)
        assert sent(delivery, now) == [number]
        waited_s = 0.0
        while True:
            waited_s += delivery.due_in_s(now=now + waited_s, server_is_silent=False)
            if waited_s >= 5.0:
                break
            assert sent(delivery, now + waited_s) == [number]
            repeated.append(number)
        now += 5.0
        confirm(delivery, spool, number, now=now)
    assert repeated == [1, 2]


def test_a_silent_server_is_not_flooded_and_gets_everything_once_it_is_back(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 1)
    sent(delivery, 0.0)
    assert sent(delivery, SILENT_PAUSE_S - 1, silent=True) == []
    delivery.start_over()
    assert sent(delivery, SILENT_PAUSE_S - 1, silent=False) == [1]


def confirmed(spool: Spool) -> Delivery:
    """Return a delivery whose first report was sent at 10 s and confirmed at once."""
    delivery = Delivery(spool, agent_id="a")
    add(spool, 1)
    assert sent(delivery, 10.0) == [1]
    confirm(delivery, spool, 1, now=10.0)
    return delivery


def test_what_only_continues_a_series_is_gathered(spool: Spool) -> None:
    delivery = confirmed(spool)
    add(spool, 2, is_urgent=False)
    assert delivery.due_in_s(now=10.5, server_is_silent=False) == GATHER_S - 0.5
    assert sent(delivery, 10.5) == []
    add(spool, 1, is_urgent=False)
    assert sent(delivery, 10.0 + GATHER_S) == [2, 3, 4]


def test_an_urgent_report_takes_along_what_was_gathered(spool: Spool) -> None:
    delivery = confirmed(spool)
    add(spool, 2, is_urgent=False)
    add(spool, 1)
    add(spool, 1, is_urgent=False)
    assert sent(delivery, 10.5) == [2, 3, 4, 5]


def test_a_backlog_is_not_held_back(spool: Spool) -> None:
    delivery = confirmed(spool)
    add(spool, MOST_GATHERED + 1, is_urgent=False)
    assert len(sent(delivery, 10.5)) == MOST_GATHERED + 1


def test_a_backlog_leaves_room_for_others(spool: Spool) -> None:
    """Whoever is answered after a quarter of a second sends again three quarters later."""
    delivery = Delivery(spool, agent_id="a")
    add(spool, 3 * BATCH_REPORTS, is_urgent=False)
    assert len(sent(delivery, 10.0)) == BATCH_REPORTS
    confirm(delivery, spool, BATCH_REPORTS, now=10.25)
    assert delivery.due_in_s(now=10.25, server_is_silent=False) == REST_RATIO * 0.25
    assert sent(delivery, 10.99) == []
    assert len(sent(delivery, 11.0)) == BATCH_REPORTS


def test_what_is_urgent_goes_at_once_if_the_next_batch_has_it(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 2 * BATCH_REPORTS, is_urgent=False)
    add(spool, 1)
    sent(delivery, 10.0)
    confirm(delivery, spool, BATCH_REPORTS, now=10.25)
    assert sent(delivery, 10.25) == []  # one too many
    assert len(sent(delivery, 11.0)) == BATCH_REPORTS
    add(spool, BATCH_REPORTS - 1, is_urgent=False)
    confirm(delivery, spool, 2 * BATCH_REPORTS, now=11.25)
    assert len(sent(delivery, 11.25)) == BATCH_REPORTS


def test_nobody_rests_for_long(spool: Spool) -> None:
    delivery = Delivery(spool, agent_id="a")
    add(spool, 2 * BATCH_REPORTS, is_urgent=False)
    sent(delivery, 10.0)
    confirm(delivery, spool, BATCH_REPORTS, now=100.0)
    assert delivery.due_in_s(now=100.0, server_is_silent=False) == MOST_REST_S
    delivery.start_over()
    assert delivery.due_in_s(now=100.0, server_is_silent=False) == 0.0


def test_what_an_earlier_life_has_left_is_not_held_back(spool: Spool, tmp_path: Path) -> None:
    add(spool, 1, is_urgent=False)
    spool.close()
    later = Spool(tmp_path / "spool", max_bytes=1_000_000)
    assert sent(Delivery(later, agent_id="a"), 0.0) == [1]
    later.close()


def test_a_server_that_is_back_gets_at_once_what_was_gathered(spool: Spool) -> None:
    delivery = confirmed(spool)
    add(spool, 1, is_urgent=False)
    delivery.start_over()
    assert sent(delivery, 10.5) == [2]
