import pytest

from farm.sampling.ticks import (
    MAX_LATENESS_S,
    CounterReading,
    instant_of,
    is_on_time,
    next_tick,
    rate_per_s,
    tick_of,
)


def test_the_rate_is_the_growth_over_one_tick() -> None:
    assert rate_per_s(CounterReading(4, 1000), CounterReading(5, 1250)) == 250.0


def test_a_counter_that_stood_still_has_a_rate_of_zero_not_a_missing_one() -> None:
    assert rate_per_s(CounterReading(4, 1000), CounterReading(5, 1000)) == 0.0


def test_the_first_reading_has_no_rate() -> None:
    assert rate_per_s(None, CounterReading(0, 1000)) is None


@pytest.mark.parametrize("tick", [3, 4, 6])
def test_no_rate_across_a_hole_or_backwards(tick: int) -> None:
    assert rate_per_s(CounterReading(4, 1000), CounterReading(tick, 2000)) is None


def test_a_counter_that_fell_has_no_rate() -> None:
    assert rate_per_s(CounterReading(4, 1000), CounterReading(5, 999)) is None


def test_tick_zero_is_the_receipt_of_go() -> None:
    assert tick_of(100.0, 100.0) == 0
    assert tick_of(100.9, 100.0) == 0
    assert tick_of(101.0, 100.0) == 1
    assert tick_of(99.9, 100.0) == -1


def test_a_timer_that_fires_a_hair_early_reads_the_tick_it_waited_for() -> None:
    assert tick_of(100.999, 98.0) == 3
    assert next_tick(100.999, 98.0) == 4


def test_a_late_wake_up_leaves_holes_instead_of_reading_in_a_burst() -> None:
    go_s, read = 50.0, []
    now_s = go_s
    for woken_late_by_s in (0.0, 0.01, 3.4, 0.0):
        tick = next_tick(now_s, go_s)
        now_s = instant_of(tick, go_s) + woken_late_by_s
        read.append((tick, is_on_time(tick, now_s, go_s=go_s)))
    assert read == [(1, True), (2, True), (3, False), (7, True)]


def test_before_go_the_next_tick_is_the_first() -> None:
    assert next_tick(10.0, 20.0) == 0


def test_a_reading_much_later_than_its_tick_is_none_of_it() -> None:
    assert is_on_time(5, 105.0 + MAX_LATENESS_S - 0.001, go_s=100.0)
    assert not is_on_time(5, 105.0 + MAX_LATENESS_S + 0.001, go_s=100.0)
    assert not is_on_time(5, 104.9, go_s=100.0)
