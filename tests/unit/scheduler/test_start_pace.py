from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.scheduler.placing import MOST_UNANSWERED, START_HOLD_S, StartPace


def test_a_burst_and_then_so_many_a_second() -> None:
    pace = StartPace(per_s=2.0, burst=3)
    assert pace.may_start(now_s=100.0)
    pace.took(3)
    assert not pace.may_start(now_s=100.4)
    assert pace.may_start(now_s=101.0)
    pace.took(1)
    assert pace.may_start(now_s=101.0)
    pace.took(1)
    assert not pace.may_start(now_s=101.0)


def test_a_gang_wider_than_what_is_left_starts_and_those_after_it_wait() -> None:
    pace = StartPace(per_s=2.0, burst=3)
    assert pace.may_start(now_s=0.0)
    pace.took(8)
    assert not pace.may_start(now_s=2.9)
    assert pace.may_start(now_s=3.0)


def test_a_clock_that_jumps_back_takes_nothing_away_and_stops_nobody() -> None:
    pace = StartPace(per_s=1.0, burst=2)
    pace.may_start(now_s=5000.0)
    pace.took(2)
    assert not pace.may_start(now_s=1400.0)
    assert pace.may_start(now_s=1401.0)


def test_nobody_starts_while_many_have_to_be_asked_twice() -> None:
    pace = StartPace()
    pace.note_unanswered(MOST_UNANSWERED, now_s=10.0)
    assert pace.may_start(now_s=10.1), "some are lost at any time"
    pace.note_unanswered(MOST_UNANSWERED + 1, now_s=10.0)
    assert not pace.may_start(now_s=10.1)
    assert pace.may_start(now_s=10.0 + START_HOLD_S)
    assert pace.may_start(now_s=-3600.0), "nor does a clock that jumps back hold them"


@given(
    steps=st.lists(st.floats(0, 10), max_size=40),
    per_s=st.floats(0.5, 50),
    burst=st.integers(1, 80),
    width=st.integers(1, 16),
)
def test_never_more_than_the_burst_and_the_rate_and_one_gang(
    steps: list[float], per_s: float, burst: int, width: int
) -> None:
    pace = StartPace(per_s=per_s, burst=burst)
    now_s = started = 0.0
    for step in steps:
        now_s += step
        while pace.may_start(now_s=now_s):
            pace.took(width)
            started += width
        assert started <= burst + per_s * now_s + width + 1e-6
