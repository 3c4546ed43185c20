"""Who counts as lost, and when."""

from __future__ import annotations

from farm.trainers.tensorflow.sessions.liveness import (
    GAVE_UP,
    LEFT,
    SILENCE_LIMIT_S,
    LivenessMonitor,
)


def watch(**settings: float) -> LivenessMonitor:
    return LivenessMonitor(
        "the server", world_size=2, arrival_limit_s=30.0, begun_s=0.0, **settings
    )


def test_a_weight_host_that_never_answers_is_lost_when_it_should_have_come() -> None:
    quiet = watch()
    assert quiet.problem(now_s=30.0) is None
    assert quiet.problem(now_s=30.1) == "the server has not answered within 30 s"


def test_a_weight_host_that_stops_answering_is_lost_after_the_limit() -> None:
    stopped = watch()
    stopped.see([1, 1], now_s=1.0)
    assert stopped.problem(now_s=1.0 + SILENCE_LIMIT_S) is None
    assert stopped.problem(now_s=1.1 + SILENCE_LIMIT_S) == "the server has not answered for 6 s"


def test_a_rank_whose_count_stands_still_is_lost_and_a_lively_one_is_not() -> None:
    gang = watch()
    for second in range(1, 8):
        gang.see([second, 3], now_s=float(second))
        assert gang.problem(now_s=float(second)) is None
    gang.see([8, 3], now_s=8.0)
    assert gang.problem(now_s=8.0) == "rank 1 has not been heard of for 6 s"


def test_no_rank_is_blamed_for_the_time_in_which_the_weight_host_was_deaf() -> None:
    gang = watch(silence_limit_s=6.0)
    gang.see([1, 1], now_s=1.0)
    gang.see([2, 1], now_s=6.9)
    gang.see([3, 1], now_s=7.9)
    assert gang.problem(now_s=7.9) is None


def test_a_rank_that_never_comes_is_lost_when_it_should_have_come() -> None:
    gang = watch()
    for second in range(31):
        gang.see([second + 1, 0], now_s=float(second))
        assert gang.problem(now_s=float(second)) is None
    gang.see([32, 0], now_s=31.0)
    assert gang.problem(now_s=31.0) == "rank 1 has not come within 30 s"


def test_whoever_left_as_agreed_is_not_lost_however_long_ago() -> None:
    gang = watch()
    for second in range(1, 20):
        gang.see([second, LEFT], now_s=float(second))
    assert gang.problem(now_s=19.0) is None
    assert gang.have_left([1])
    assert not gang.have_left([0, 1])


def test_a_rank_that_gave_up_is_lost_at_once() -> None:
    gang = watch()
    gang.see([1, GAVE_UP], now_s=1.0)
    assert gang.problem(now_s=1.0) == "rank 1 gave up"
