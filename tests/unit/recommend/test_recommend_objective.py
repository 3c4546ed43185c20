import math
from typing import Any

import pytest

from farm.errors import InvalidSpec
from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.contracts import Objective, Option, Question
from farm.recommend.objective import pareto_front, rank
from farm.recommend.setup import USUAL_SETUP


def option(
    name: str, time_s: float | None, cost_usd: float | None = None, **changes: Any
) -> Option:
    fields: dict[str, Any] = {
        "strategy": name,
        "world_size": 1,
        "server_count": 0,
        "instance_type": None,
        "framework": None,
        "setup": USUAL_SETUP,
        "network": None,
        "fingerprint": None,
        "time_per_epoch_s": time_s,
        "step_time_s": None,
        "step_time_spread_s": None,
        "spread_s": None,
        "low_s": None,
        "high_s": None,
        "low80_s": None,
        "high80_s": None,
        "time_s": time_s,
        "cost_usd": cost_usd,
        "accuracy": None,
        "repetition_count": 1,
        "basis": "measured",
        "measurement_ids": (1,),
    }
    return Option(**{**fields, **changes})


def names(options: list[Option]) -> list[str | None]:
    return [o.strategy for o in options]


def test_by_default_the_fastest_is_best() -> None:
    ranked = rank([option("slow", 3.0), option("fast", 1.0), option("mid", 2.0)], Objective())
    assert names(ranked) == ["fast", "mid", "slow"]


def test_the_weights_trade_time_for_cost() -> None:
    options = [option("fast", 100.0, 9.0), option("cheap", 300.0, 1.0)]
    assert names(rank(options, Objective(alpha=1.0, beta=20.0))) == ["fast", "cheap"]
    ranked = rank(options, Objective(alpha=1.0, beta=30.0))
    assert names(ranked) == ["cheap", "fast"]
    assert [o.score for o in ranked] == [330.0, 370.0]


def test_an_unknown_cost_is_neither_cheap_nor_dear_it_cannot_be_compared() -> None:
    options = [option("unknown", 1.0), option("known", 100.0, 1.0)]
    ranked = rank(options, Objective(beta=1.0))
    assert names(ranked) == ["known", "unknown"]
    assert ranked[1].score is None
    assert names(rank(options, Objective())) == ["unknown", "known"]


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        (Objective(deadline_s=5.0), "takes 10 s, longer than deadline_s = 5"),
        (Objective(budget_usd=1.0), "costs 2 USD, more than budget_usd = 1"),
        (
            Objective(min_accuracy_ratio=0.9),
            "reaches an accuracy of 0.8, less than min_accuracy_ratio = 0.9",
        ),
    ],
)
def test_an_option_outside_a_limit_comes_last_with_the_reason(
    objective: Objective, reason: str
) -> None:
    outside = option("outside", 10.0, 2.0, accuracy=0.8)
    within = option("within", 4.0, 1.0, accuracy=0.9)
    worse = option("worse", 4.5, 1.0, accuracy=0.9)
    ranked = rank([outside, worse, within], objective)
    assert names(ranked) == ["within", "worse", "outside"]
    assert [o.excluded_because for o in ranked] == [None, None, reason]


def test_the_budget_is_held_against_the_upper_end_of_the_cost() -> None:
    sure = option("sure", 10.0, 1.0, cost_high_usd=1.9)
    cheaper = option("cheaper", 9.0, 0.9, cost_high_usd=2.1)
    ranked = rank([cheaper, sure], Objective(budget_usd=2.0))
    assert names(ranked) == ["sure", "cheaper"]
    assert ranked[1].excluded_because == "may cost up to 2.1 USD, more than budget_usd = 2"


def test_the_deadline_is_held_against_the_upper_end_of_the_time() -> None:
    sure = option("sure", 10.0, time_high_s=19.0)
    faster = option("faster", 9.0, time_high_s=21.0)
    ranked = rank([faster, sure], Objective(deadline_s=20.0))
    assert names(ranked) == ["sure", "faster"]
    assert ranked[1].excluded_because == "may take up to 21 s, longer than deadline_s = 20"


def test_only_the_machines_at_hand_can_be_used() -> None:
    wide = option("wide", 1.0, world_size=3, server_count=1)
    ranked = rank([wide, option("narrow", 2.0)], Objective(max_machine_count=3))
    assert names(ranked) == ["narrow", "wide"]
    assert ranked[1].excluded_because == "needs 4 machines, and 3 are at hand"


def untimed(name: str, step_time_s: float, **changes: Any) -> Option:
    return option(name, None, step_time_s=step_time_s, **changes)


def test_where_no_training_time_is_known_the_step_decides() -> None:
    options = [untimed("slow", 2.0), untimed("fast", 1.0)]
    ranked = rank(options, Objective())
    assert names(ranked) == ["fast", "slow"]
    assert names(pareto_front(ranked)) == ["fast"]
    gang = untimed("gang", 1.0, price_usd_per_hour=3600.0, world_size=2)
    alone = untimed("alone", 1.4, price_usd_per_hour=3600.0)
    assert names(rank([gang, alone], Objective(beta=1.0))) == ["alone", "gang"]
    limited = rank(options, Objective(deadline_s=100.0))
    assert all(o.excluded_because is not None for o in limited)


def test_steps_of_trainings_with_more_epochs_count_more() -> None:
    slow_learner = untimed("slow learner", 1.0, epoch_count=5)
    ranked = rank([slow_learner, untimed("other", 2.0, epoch_count=2)], Objective())
    assert [(o.strategy, o.score) for o in ranked] == [("other", 4.0), ("slow learner", 5.0)]


def test_a_time_that_is_not_known_cannot_be_compared_with_one_that_is() -> None:
    ranked = rank([untimed("unknown", 0.1), option("known", 5.0)], Objective())
    assert names(ranked) == ["known", "unknown"]
    assert ranked[1].excluded_because == "how long it takes is not known"
    assert names(pareto_front(ranked)) == ["known"]


def test_what_was_excluded_before_stays_so() -> None:
    ranked = rank([option("never", 1.0, excluded_because="out of reach")], Objective())
    assert ranked[0].excluded_because == "out of reach"


def test_a_limit_itself_is_within_it() -> None:
    objective = Objective(deadline_s=10.0, budget_usd=2.0, min_accuracy_ratio=0.8)
    assert rank([option("x", 10.0, 2.0, accuracy=0.8)], objective)[0].excluded_because is None


def test_what_is_not_known_cannot_be_held_against_a_limit() -> None:
    for objective in (Objective(budget_usd=1.0), Objective(min_accuracy_ratio=0.5)):
        assert rank([option("x", 1.0)], objective)[0].excluded_because is not None


def test_of_equally_good_ones_the_one_with_fewer_machines_wins() -> None:
    options = [
        option("four", 1.0, world_size=4),
        option("three", 1.0, world_size=2, server_count=1),
    ]
    assert names(rank(options, Objective())) == ["three", "four"]


def test_the_order_of_the_options_does_not_matter() -> None:
    options = [option("a", 2.0), option("b", 2.0), option("c", 1.0)]
    assert rank(options, Objective()) == rank(options[::-1], Objective())


def test_the_front_holds_what_nothing_beats_in_every_respect() -> None:
    options = [
        option("fast", 1.0, 9.0),
        option("cheap", 9.0, 1.0),
        option("between", 5.0, 5.0),
        option("beaten", 6.0, 6.0),
    ]
    assert names(pareto_front(options)) == ["fast", "cheap", "between"]


def test_accuracy_can_save_a_slow_option() -> None:
    options = [option("fast", 1.0, accuracy=0.8), option("good", 2.0, accuracy=0.9)]
    assert names(pareto_front(options)) == ["fast", "good"]


def test_what_is_not_known_of_all_is_not_compared() -> None:
    options = [option("fast", 1.0), option("slow", 2.0, 1.0)]
    assert names(pareto_front(options)) == ["fast"]


def test_equal_options_do_not_push_each_other_off_the_front() -> None:
    assert names(pareto_front([option("a", 1.0), option("b", 1.0)])) == ["a", "b"]


@pytest.mark.parametrize(
    "weights",
    [
        *({"alpha": -1.0}, {"beta": math.nan}, {"alpha": math.inf}, {"alpha": 0.0}),
        *({"alpha": 5e-324}, {"beta": 1e-13}, {"alpha": 1e13}, {"budget_usd": -1}),
    ],
)
def test_an_objective_without_sense_is_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        Objective(**weights)


@pytest.mark.parametrize(
    "changes", [{"global_batch_size": 0}, {"one_way_delay_s": -1.0}, {"epochs": 0}]
)
def test_a_question_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=f"^{next(iter(changes))}: "):
        Question(**{"global_batch_size": 32, **changes})


@pytest.mark.parametrize(
    ("name", "value"),
    [("one_way_delay_s", 5e-10), ("jitter_s", 5e-324), ("packet_loss_ratio", 1e-10)],
)
def test_a_condition_that_no_network_tells_from_none_is_none(name: str, value: float) -> None:
    """As in a sweep: otherwise nothing measured without a delay would answer."""
    fields: dict[str, Any] = {"global_batch_size": 32, name: value}
    assert Question(**fields) == Question(global_batch_size=32)


@pytest.mark.parametrize(
    "times_s",
    [[], [1.0], [1.0, 2.0], [0.0, 1.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0001, 1.9999], [1.0, 1, 2]],
)
def test_too_few_repetitions_give_no_interval(times_s: list[float]) -> None:
    assert prediction_interval(times_s, coverage_ratio=0.9) is None


def test_an_interval_is_positive_and_wider_for_more_certainty() -> None:
    times_s = [1.0, 1.1, 1.3, 0.9]
    narrow = prediction_interval(times_s, coverage_ratio=0.8)
    wide = prediction_interval(times_s, coverage_ratio=0.9)
    assert narrow is not None
    assert wide is not None
    assert 0 < wide.low_s < narrow.low_s < 1.05 < narrow.high_s < wide.high_s
