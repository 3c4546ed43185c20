"""The scores of predictions, on numbers small enough to check by hand."""

from __future__ import annotations

import math

import pytest

from farm.recommend.configuration import Observation
from farm.recommend.contracts import Basis, Prediction
from farm.recommend.evaluating.scores import (
    HeldOutAnswer,
    error_score,
    interval_score,
    log_interval_score,
    regret_ratio,
    regret_score,
)
from tests.truths.synthetic_steps import configuration


def outcome(
    true_s: float, predicted_s: float | None, *, bounds: tuple[float, float] | None = None
) -> HeldOutAnswer:
    low_s, high_s = bounds or (None, None)
    return HeldOutAnswer(
        observation=Observation(
            measurement_id=1, configuration=configuration(2, 64), step_time_s=true_s
        ),
        prediction=Prediction(
            step_time_s=predicted_s,
            low_s=low_s,
            high_s=high_s,
            low80_s=low_s,
            high80_s=high_s,
            basis=Basis.UNKNOWN if predicted_s is None else Basis.INTERPOLATED,
        ),
    )


def test_errors_are_relative_to_what_was_measured() -> None:
    score = error_score([outcome(2.0, 1.0), outcome(1.0, 1.1), outcome(1.0, 2.0)])
    assert score.median_ratio == pytest.approx(0.5)
    assert score.mean_ratio == pytest.approx((0.5 + 0.1 + 1.0) / 3)


def test_what_is_unknown_is_counted_and_no_error() -> None:
    score = error_score([outcome(1.0, None), outcome(1.0, 1.1)])
    assert (score.answered_count, score.unknown_count) == (1, 1)
    assert score.median_ratio == pytest.approx(0.1)
    assert error_score([outcome(1.0, None)]).median_ratio is None


def test_an_interval_covers_its_own_ends() -> None:
    inside = [outcome(1.0, 1.0, bounds=(1.0, 2.0)), outcome(2.0, 1.0, bounds=(1.0, 2.0))]
    outside = outcome(2.1, 1.0, bounds=(1.0, 2.0))
    score = interval_score([*inside, outside], aim_ratio=0.8)
    assert score.coverage_ratio == pytest.approx(2 / 3)
    assert score.width_ratio == pytest.approx(1.0)
    assert interval_score([outcome(1.0, None)], aim_ratio=0.9).coverage_ratio is None


def test_a_miss_costs_two_over_alpha_times_its_distance() -> None:
    width = math.log(2)
    assert log_interval_score(1, 2, 1.5, aim_ratio=0.8) == pytest.approx(width)
    assert log_interval_score(1, 2, 4, aim_ratio=0.8) == pytest.approx(width + 10 * width)
    assert log_interval_score(1, 2, 0.5, aim_ratio=0.9) == pytest.approx(width + 20 * width)


def test_the_interval_score_has_no_unit() -> None:
    in_seconds = log_interval_score(1, 2, 4, aim_ratio=0.8)
    assert log_interval_score(1e3, 2e3, 4e3, aim_ratio=0.8) == pytest.approx(in_seconds)


def test_regret_is_what_the_chosen_takes_more_than_the_best() -> None:
    true = {"one": 1.0, "two": 1.5, "four": 3.0}
    assert regret_ratio(true, {"one": 9, "two": 8, "four": 9}) == pytest.approx(0.5)
    assert regret_ratio(true, {"one": 1, "two": 8, "four": 9}) == 0
    assert regret_ratio(true, {"four": 9}) == pytest.approx(2.0)


def test_regrets_are_summarised() -> None:
    score = regret_score([0.0] * 19 + [1.0])
    assert score.right_ratio == pytest.approx(0.95)
    assert score.mean_ratio == pytest.approx(0.05)
    assert (score.p95_ratio, score.max_ratio) == (0.0, 1.0)
    assert regret_score([]).mean_ratio is None
