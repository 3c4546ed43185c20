"""How profiled steps are split into computing and communicating."""

from __future__ import annotations

import pytest

from farm.trainers.loop.step_profile import exchange_times, step_profile


def test_the_medians_are_of_the_steps_and_not_of_their_sum() -> None:
    profile = step_profile([10.0, 11.0, 30.0, 9.0], [2.0, 4.0, 21.0, 1.0])
    assert profile is not None
    assert profile.step_count == 3
    assert profile.step_time_s == 11.0
    assert profile.communication_s == 4.0
    assert profile.compute_s == 8.0


def test_each_profiled_step_tells_how_long_its_rank_computed_nothing() -> None:
    profile = step_profile([10.0, 20.0, 4.0, 9.0], [2.0, 15.0, 5.0, 1.0])
    assert profile is not None
    assert profile.idle_ratios == (0.2, 0.75, 1.0)


def test_several_collectives_of_a_step_are_added() -> None:
    profile = step_profile([10.0] * 3, [1.0, 2.0] * 3)
    assert profile is not None
    assert profile.communication_s == 3.0


@pytest.mark.parametrize("collectives_s", [[1.0] * 3, [1.0] * 4])
def test_the_last_step_may_lack_its_collective(collectives_s: list[float]) -> None:
    profile = step_profile([5.0, 5.0, 5.0, 100.0], collectives_s)
    assert profile is not None
    assert profile.step_time_s == 5.0
    assert profile.communication_s == 1.0


def test_one_rank_alone_communicates_nothing() -> None:
    profile = step_profile([1.0, 2.0, 3.0], ())
    assert profile is not None
    assert profile.communication_s == 0.0
    assert profile.compute_s == profile.step_time_s == 1.5


@pytest.mark.parametrize("collectives_s", [None, [1.0], [1.0] * 7])
def test_a_trace_with_holes_gives_nothing(collectives_s: list[float] | None) -> None:
    assert step_profile([1.0] * 5, collectives_s) is None


def test_overlapping_collectives_never_make_computing_negative() -> None:
    profile = step_profile([1.0, 1.0], [0.9, 0.9, 0.9, 0.9])
    assert profile is not None
    assert profile.compute_s == 0.0


def test_an_exchange_of_every_third_step_is_spread_over_the_steps_between() -> None:
    # Two whole periods of three, one step more, and the one that only closes.
    profile = step_profile(
        [0.1, 0.1, 0.4, 0.1, 0.1, 0.4, 0.1, 0.1], [0, 0, 0.3, 0, 0, 0.3, 0, 0], period=3
    )
    assert profile is not None
    assert profile.step_time_s == pytest.approx(0.2)
    assert profile.communication_s == pytest.approx(0.1)
    assert profile.compute_s == pytest.approx(0.1)


@pytest.mark.parametrize("inside_s", [0.0, 0.3])
def test_an_exchange_rarer_than_the_profiled_steps_gives_nothing(inside_s: float) -> None:
    times_s = [0.1, 0.1 + inside_s, 0.1]
    assert step_profile(times_s, [0.0, inside_s, 0.0], period=3) is None
    assert step_profile(times_s, [0.0, inside_s, 0.0], period=2) is not None


def test_the_ranks_agreement_on_a_collective_is_a_part_of_it() -> None:
    # As rank 1 sees it: a round trip to rank 0 for the parameters, and then the exchange.
    assert exchange_times([(100, 50), (220, 48)], [(170, 49), (45, 54)], []) == (104, 97)
    assert exchange_times([(100, 50)], [(45, 54), (170, 49)], []) == (104,)  # the last has no end
    # Without agreements: since the last operation before.
    operations = [(5, 10), (20, 30), (150, 5), (160, 2), (222, 90)]
    assert exchange_times([(220, 48), (100, 50)], [], operations) == (50 + 50, 48 + 58)
    assert exchange_times([(100, 50)], [], []) == (50,)
