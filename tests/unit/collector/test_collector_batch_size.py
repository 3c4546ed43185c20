"""How many messages are stored together: as many as fit into the time, and never none.

And for how long more of them are waited for: only where many come.
"""

from __future__ import annotations

import pytest

from farm.collector.batch_reader import FEWEST, MOST, ArrivalRate, BatchSize


def settled(message_s: float, *, overhead_s: float = 0.005) -> int:
    size = BatchSize()
    for _ in range(20):
        work_s = overhead_s + size.count * message_s
        size.took(size.count, work_s=work_s, time_s=work_s)
    return size.count


def grown(*, time_s: float) -> BatchSize:
    """Return what little work makes of a batch, whatever it waits for: the largest."""
    size = BatchSize()
    for _ in range(10):
        size.took(size.count, work_s=0.01, time_s=time_s)
    assert size.count == MOST
    return size


@pytest.mark.parametrize(
    ("message_s", "low", "high"),
    [(0.0001, MOST, MOST), (0.002, 60, 100), (0.01, 10, 20), (1.0, FEWEST, FEWEST)],
)
def test_a_portion_takes_about_a_fifth_of_a_second(message_s: float, low: int, high: int) -> None:
    assert low <= settled(message_s) <= high


def test_a_portion_that_was_not_full_changes_nothing() -> None:
    size = BatchSize()
    for _ in range(20):
        size.took(1, work_s=0.001, time_s=0.001)
    assert size.count == FEWEST


def test_a_slow_one_makes_the_next_smaller_at_once() -> None:
    size = grown(time_s=0.01)
    size.took(MOST, work_s=4.0, time_s=4.0)
    assert size.count <= MOST / 15


def test_one_that_waited_for_a_lock_makes_none_smaller_unless_it_waited_for_very_long() -> None:
    size = grown(time_s=2.0)
    size.took(MOST, work_s=0.01, time_s=10.0)
    assert size.count == FEWEST


def arrived(*, count: int, every_s: float, portions: int) -> ArrivalRate:
    arrivals = ArrivalRate()
    for i in range(portions):
        arrivals.came(count, queue="reports", is_full=False, now_s=1000.0 + i * every_s)
    return arrivals


def test_nothing_is_waited_for_before_anything_is_known() -> None:
    assert arrived(count=200, every_s=0.1, portions=5).gather_s == 0.0


@pytest.mark.parametrize(("count", "every_s"), [(1, 0.1), (30, 1.0), (200, 10.0)])
def test_few_messages_are_taken_at_once(count: int, every_s: float) -> None:
    assert arrived(count=count, every_s=every_s, portions=50).gather_s == 0.0


@pytest.mark.parametrize(("count", "every_s"), [(1, 0.01), (10, 0.1), (100, 1.0)])
def test_many_messages_are_let_gather_for_a_moment(count: int, every_s: float) -> None:
    assert 0.0 < arrived(count=count, every_s=every_s, portions=200).gather_s <= 0.1


def test_nothing_is_waited_for_any_more_after_a_lull() -> None:
    arrivals = arrived(count=10, every_s=0.1, portions=200)
    arrivals.came(1, queue="reports", is_full=False, now_s=2000.0)
    assert arrivals.gather_s == 0.0


def test_nothing_is_waited_for_while_any_queue_is_behind() -> None:
    arrivals = arrived(count=10, every_s=0.1, portions=200)
    arrivals.came(10, queue="heartbeats", is_full=True, now_s=1020.0)
    arrivals.came(10, queue="reports", is_full=False, now_s=1020.1)
    assert arrivals.gather_s == 0.0
    arrivals.came(10, queue="heartbeats", is_full=False, now_s=1020.2)
    assert arrivals.gather_s > 0.0
