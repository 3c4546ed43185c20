from hypothesis import given
from hypothesis import strategies as st

from farm.sampling.ticks import CounterReading, instant_of, next_tick, rate_per_s, tick_of

INSTANTS = st.floats(min_value=0, max_value=1e7)
DELAYS = st.floats(min_value=0, max_value=30)
COUNTERS = st.integers(min_value=0, max_value=2**63 - 1)


@given(go_s=INSTANTS, delays_s=st.lists(DELAYS, max_size=30))
def test_however_late_the_wake_ups_ticks_are_read_once_and_in_order(
    go_s: float, delays_s: list[float]
) -> None:
    now_s, last = go_s, 0
    for delay_s in delays_s:
        tick = next_tick(now_s, go_s)
        assert tick > last
        now_s, last = instant_of(tick, go_s) + delay_s, tick


@given(go_s=INSTANTS, tick=st.integers(min_value=0, max_value=10**6))
def test_the_instant_of_a_tick_lies_in_that_tick(go_s: float, tick: int) -> None:
    assert tick_of(instant_of(tick, go_s), go_s) == tick


@given(
    previous=st.builds(CounterReading, st.integers(0, 50), COUNTERS),
    current=st.builds(CounterReading, st.integers(0, 50), COUNTERS),
)
def test_a_rate_is_never_negative_and_exists_only_between_neighbours(
    previous: CounterReading, current: CounterReading
) -> None:
    rate = rate_per_s(previous, current)
    is_known = current.tick == previous.tick + 1 and current.value >= previous.value
    assert (rate is not None) == is_known
    assert rate is None or rate >= 0
