"""How many messages are stored together: as many as fit into the time, and never none."""

from __future__ import annotations

import pytest

from farm.collector.gathering import FEWEST, MOST, Portion


def settled(message_s: float, *, overhead_s: float = 0.005) -> int:
    portion = Portion()
    for _ in range(20):
        portion.took(portion.count, overhead_s + portion.count * message_s)
    return portion.count


@pytest.mark.parametrize(
    ("message_s", "low", "high"),
    [(0.0001, MOST, MOST), (0.002, 60, 100), (0.01, 10, 20), (1.0, FEWEST, FEWEST)],
)
def test_a_portion_takes_about_a_fifth_of_a_second(message_s: float, low: int, high: int) -> None:
    assert low <= settled(message_s) <= high


def test_a_portion_that_was_not_full_changes_nothing() -> None:
    portion = Portion()
    for _ in range(20):
        portion.took(1, 0.001)
    assert portion.count == FEWEST


def test_a_slow_one_makes_the_next_smaller_at_once() -> None:
    portion = Portion()
    for _ in range(10):
        portion.took(portion.count, 0.01)
    assert portion.count == MOST
    portion.took(MOST, 4.0)
    assert portion.count <= MOST / 15
