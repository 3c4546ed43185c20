"""How many messages are stored together: as many as fit into the time, and never none."""

from __future__ import annotations

import pytest

from farm.collector.gathering import FEWEST, MOST, Portion


def settled(message_s: float, *, overhead_s: float = 0.005) -> int:
    portion = Portion()
    for _ in range(20):
        work_s = overhead_s + portion.count * message_s
        portion.took(portion.count, work_s=work_s, time_s=work_s)
    return portion.count


def grown(*, time_s: float) -> Portion:
    """Return what little work makes of a portion, whatever it waits for: the largest."""
    portion = Portion()
    for _ in range(10):
        portion.took(portion.count, work_s=0.01, time_s=time_s)
    assert portion.count == MOST
    return portion


@pytest.mark.parametrize(
    ("message_s", "low", "high"),
    [(0.0001, MOST, MOST), (0.002, 60, 100), (0.01, 10, 20), (1.0, FEWEST, FEWEST)],
)
def test_a_portion_takes_about_a_fifth_of_a_second(message_s: float, low: int, high: int) -> None:
    assert low <= settled(message_s) <= high


def test_a_portion_that_was_not_full_changes_nothing() -> None:
    portion = Portion()
    for _ in range(20):
        portion.took(1, work_s=0.001, time_s=0.001)
    assert portion.count == FEWEST


def test_a_slow_one_makes_the_next_smaller_at_once() -> None:
    portion = grown(time_s=0.01)
    portion.took(MOST, work_s=4.0, time_s=4.0)
    assert portion.count <= MOST / 15


def test_one_that_waited_for_a_lock_makes_none_smaller_unless_it_waited_for_very_long() -> None:
    portion = grown(time_s=2.0)
    portion.took(MOST, work_s=0.01, time_s=10.0)
    assert portion.count == FEWEST
