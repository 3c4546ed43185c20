import random

from hypothesis import given, settings
from hypothesis import strategies as st

from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.contracts import Objective, Option
from farm.recommend.objective import pareto_front, rank
from tests.unit.recommend.test_recommend_objective import option

TIMES = st.floats(0.001, 1e6)
OPTIONS = st.lists(
    st.builds(
        option,
        st.sampled_from("abc"),
        TIMES,
        st.none() | TIMES,
        accuracy=st.none() | st.floats(0, 1),
        world_size=st.integers(1, 8),
    ),
    min_size=1,
    max_size=8,
)


@given(OPTIONS, st.floats(0.01, 10), st.just(0.0) | st.floats(0.01, 10))
def test_no_feasible_option_beats_the_first(
    options: list[Option], alpha: float, beta: float
) -> None:
    ranked = rank(options, Objective(alpha=alpha, beta=beta, deadline_s=1000.0))
    scores = [o.score for o in ranked if o.excluded_because is None and o.score is not None]
    assert scores == sorted(scores)
    assert len(ranked) == len(options)


@given(OPTIONS)
def test_the_front_is_never_empty_and_has_the_fastest(options: list[Option]) -> None:
    front = pareto_front(options)
    fastest_s = min(o.time_s or 0.0 for o in options)
    assert any(o.time_s == fastest_s for o in front)


@settings(max_examples=30)
@given(st.lists(TIMES, min_size=3, max_size=8), st.floats(0.001, 1000))
def test_intervals_are_free_of_units(times_s: list[float], factor: float) -> None:
    interval = prediction_interval(times_s, coverage_ratio=0.9)
    scaled = prediction_interval([t * factor for t in times_s], coverage_ratio=0.9)
    if interval is None or scaled is None:
        return  # they repeat each other
    for one, other in ((interval.low_s, scaled.low_s), (interval.high_s, scaled.high_s)):
        assert abs(one * factor - other) <= 1e-6 * other


def test_an_interval_covers_about_as_often_as_it_says() -> None:
    """On synthetic log-normal repetitions: five measured, and where the sixth falls."""
    rng = random.Random(7)
    hit_count, trial_count = 0, 2000
    for _ in range(trial_count):
        *measured, following = (rng.lognormvariate(0.0, 0.2) for _ in range(6))
        interval = prediction_interval(measured, coverage_ratio=0.9)
        assert interval is not None
        hit_count += interval.low_s <= following <= interval.high_s
    # Two standard deviations of a binomial are 1.3 %.
    assert 0.88 <= hit_count / trial_count <= 0.92
