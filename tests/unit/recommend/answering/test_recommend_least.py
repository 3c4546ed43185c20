"""The options with the least time, cost and energy."""

from __future__ import annotations

from typing import Any

from farm.recommend.answering.answer import answer_from
from farm.recommend.answering.options import Options
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from tests.unit.recommend.answering.test_recommend_measured import evidence
from tests.unit.recommend.test_recommend_objective import option


def known(strategy: str, time_s: float, **changes: Any) -> Option:
    ends = {"step_low_s": time_s / 1.05, "step_high_s": time_s * 1.05}
    return option(strategy, time_s, **{"step_time_s": time_s, **ends, **changes})


def answered(*options: Option, objective: Objective | None = None) -> Recommendation:
    found = Options(options=options, warnings=())
    question = Question(global_batch_size=64)
    return answer_from(found, question, objective or Objective(), [evidence(1)])


def strategies(answer: Recommendation) -> list[str | None]:
    least = (answer.fastest, answer.cheapest, answer.least_energy)
    return [None if one is None else one.strategy for one in least]


def test_time_cost_and_energy_may_each_have_another_best_option() -> None:
    answer = answered(
        known("fast", 1.0, price_usd_per_hour=9.0, power_w=300.0),
        known("cheap", 2.0, price_usd_per_hour=1.0, power_w=200.0),
        known("frugal", 3.0, price_usd_per_hour=2.0, power_w=50.0),
    )
    assert strategies(answer) == ["fast", "cheap", "frugal"]
    assert answer.least_unknown_because == {}


def test_options_of_which_it_is_not_known_are_not_compared() -> None:
    answer = answered(known("fast", 1.0), known("slow", 2.0, power_w=50.0))
    assert strategies(answer) == ["fast", None, "slow"]
    assert answer.least_unknown_because == {"cheapest": "no price of their machines is known"}


def test_energy_that_nobody_measured_is_told_as_such() -> None:
    answer = answered(known("fast", 1.0, price_usd_per_hour=1.0))
    assert strategies(answer) == ["fast", "fast", None]
    assert answer.least_unknown_because == {"least_energy": "the energy of none was measured"}


def test_what_is_beyond_a_limit_or_a_guess_is_not_the_least() -> None:
    options = (
        known("late", 9.0, power_w=1.0),
        known("a guess", 1.0, power_w=2.0, basis="extrapolated", speculative_because="it is"),
        known("good", 2.0, power_w=50.0),
    )
    answer = answered(*options, objective=Objective(deadline_s=5.0))
    assert strategies(answer)[2] == "good"
    answer = answered(options[0], objective=Objective(deadline_s=5.0))
    assert answer.least_unknown_because["fastest"] == "no option is within the limits"
