"""What is recommended: the best that is known, not a guess, and how sure that is."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from farm.cells.option_table import option_columns, option_lines
from farm.cli.advice.recommend import worth_measuring
from farm.measuring.measurement import OK
from farm.measuring.noise import UNDISTURBED, Disturbance
from farm.recommend.answering.answer import answer_from
from farm.recommend.answering.options import Options
from farm.recommend.answering.training import trains_alike
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from farm.recommend.objective import best_probability, choose, rank
from farm.recommend.setup import Setup, published_name
from tests.unit.recommend.answering.test_recommend_measured import evidence
from tests.unit.recommend.test_recommend_objective import option
from web.pages.advice import way_names

QUESTION = Question(global_batch_size=64)
GUESS = "it lies beyond everything that was measured"


def known(middle_s: float, factor: float = 1.05, **changes: Any) -> Option:
    """An option that takes `middle_s`, give or take that factor."""
    fields: dict[str, Any] = {
        "step_time_s": middle_s,
        "step_low_s": middle_s / factor,
        "step_high_s": middle_s * factor,
    }
    return option("ring", middle_s, **{**fields, **changes})


def guess(middle_s: float, factor: float = 10.0, **changes: Any) -> Option:
    fields = {"basis": "extrapolated", "speculative_because": GUESS, "repetition_count": 0}
    return known(middle_s, factor, **{**fields, **changes})


def answered(*options: Option) -> Recommendation:
    found = Options(options=options, warnings=())
    return answer_from(found, QUESTION, Objective(), [evidence(1)], predictor_measurement_count=4)


def naming_texts(answer: Recommendation) -> list[tuple[str, ...]]:
    """What names each option in the table, up to the instance type."""
    columns = option_columns(option_lines(answer.options, QUESTION))
    titles = [column.title for column, _ in columns]
    return list(zip(*(texts for _, texts in columns[: titles.index("repetitions")]), strict=True))


def names(sentences: Sequence[str], *words: str) -> bool:
    """Whether one thing is said, and it has all these words and numbers in it."""
    return len(sentences) == 1 and all(word in sentences[0] for word in words)


def test_a_guess_is_worth_measuring_and_is_not_recommended() -> None:
    measured, far = known(1.0, world_size=2), guess(0.3, world_size=8)
    answer = answered(measured, far)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2
    assert [o.world_size for o in answer.options] == [2, 8]
    assert [o.world_size for o in answer.worth_measuring] == [8]
    assert names(worth_measuring(answer), GUESS)
    assert answer.best_probability is not None
    assert answer.best_probability < 0.5


def test_where_all_are_guesses_the_least_risky_one_is_named_as_a_guess() -> None:
    answer = answered(guess(1.0, 2.5, world_size=2), guess(0.9, 30.0, world_size=8))
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2
    assert names(answer.cautions, GUESS)
    assert not answer.is_firm


def test_an_extrapolated_option_has_to_be_surely_better() -> None:
    measured = known(1.0, world_size=1)
    near = known(0.9, 1.3, world_size=4, basis="extrapolated")
    far = known(0.3, 1.3, world_size=4, basis="extrapolated")
    assert choose(rank([measured, near], Objective())) != near
    chosen = answered(measured, far)
    assert chosen.recommended is not None
    assert chosen.recommended.world_size == 4
    assert names(chosen.cautions, "extrapolated")
    assert not chosen.is_firm


@pytest.mark.parametrize(
    ("time_s", "text", "caution"),
    [
        (0.3, None, None),
        (0.05, None, "4 machines would be 20.0 times as fast as one"),
        (0.3, "ranks_per_agent=4", None),
        (0.05, "ranks_per_agent=4", "4 ranks would be 20.0 times as fast as one"),
    ],
)
def test_a_gang_is_not_faster_than_all_of_its_ranks(
    time_s: float, text: str | None, caution: str | None
) -> None:
    answer = answered(known(1.0, world_size=1), known(time_s, world_size=4, setup=Setup.read(text)))
    beginnings = [text.partition(":")[0] for text in answer.cautions if "the same unit" in text]
    assert beginnings == ([] if caution is None else [caution])


def test_of_two_that_are_as_fast_the_surer_one_is_recommended() -> None:
    answer = answered(known(1.0, 3.0, world_size=4), known(1.01, 1.02, world_size=2))
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2


@pytest.mark.parametrize(
    "ends_s", [(2.999999999999999, 3.000000000000001), (3.000000000000001, 2.999999999999999)]
)
def test_of_equal_options_the_one_with_fewer_machines_is_recommended(
    ends_s: tuple[float, float],
) -> None:
    one, three = (
        known(4.0, 1.25, world_size=size, step_low_s=low_s)
        for size, low_s in zip((1, 3), ends_s, strict=True)
    )
    answer = answered(one, three)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 1


def test_an_option_whose_interval_is_not_known_is_not_preferred_for_that() -> None:
    bare = option("ring", 1.01, step_time_s=1.01, world_size=4)
    answer = answered(known(1.0, 1.5, world_size=2), bare)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2


@pytest.mark.parametrize("repetition_count", [1, 2, 3])
def test_an_option_without_an_interval_is_doubtful_however_often_it_was_measured(
    repetition_count: int,
) -> None:
    answer = answered(option("ring", 1.0, step_time_s=1.0, repetition_count=repetition_count))
    assert any("no interval" in warning for warning in answer.warnings)
    assert not answer.is_firm


def test_a_wide_interval_is_never_a_firm_answer() -> None:
    answer = answered(known(1.0, 1.5, world_size=2))
    assert "90 % interval" in answer.cautions[0]
    assert not answer.is_firm
    assert answered(known(1.0, 1.4, world_size=2), known(3.0, 1.4, world_size=1)).is_firm


def test_the_only_option_that_is_known_is_no_firm_answer() -> None:
    answer = answered(known(1.0, 1.1, world_size=2))
    assert names(answer.cautions, "only option")
    assert answer.best_probability is None
    assert not answer.is_firm


def test_one_machine_is_no_firm_answer_where_no_gang_is_known() -> None:
    answer = answered(
        known(1.0, 1.1, world_size=1), known(2.0, 1.1, world_size=1, strategy="mirrored")
    )
    assert names(answer.cautions, "gang")
    assert answer.best_probability is None


def test_what_was_asked_for_and_is_not_known_is_said_first() -> None:
    found = Options(options=(known(1.0, world_size=1), known(0.5, world_size=2)), warnings=())
    question = Question(global_batch_size=64, world_sizes=(1, 2, 4, 8), strategies=("ring", "ps"))
    answer = answer_from(found, question, Objective(), [evidence(1)])
    world_sizes, strategy = answer.cautions
    assert "4 and 8" in world_sizes
    assert "ps" in strategy
    assert answer.best_probability is None


def test_a_gang_that_is_faster_than_its_machines_can_make_it_is_doubted() -> None:
    answer = answered(known(500.0, world_size=1), known(0.3, world_size=2))
    assert names(answer.cautions, "1,666.7 times")
    assert answered(known(5.0, world_size=1), known(1.0, world_size=2)).cautions == ()


def test_an_option_that_learns_clearly_less_is_doubted() -> None:
    single = known(1.0, world_size=1, accuracy=0.97)
    assert answered(single, known(0.5, world_size=2, accuracy=0.95)).cautions == ()
    worse = answered(single, known(0.5, world_size=2, accuracy=0.45))
    assert names(worse.cautions, "45 %", "--min-accuracy")


def test_an_option_that_fails_as_a_rule_is_doubted() -> None:
    gang = known(0.5, world_size=2)
    found = Options(options=(known(1.0, world_size=1), gang), warnings=())

    def cautions(failed_count: int, status: str) -> tuple[str, ...]:
        tried = [
            evidence(
                number,
                strategy="ring",
                world_size=2,
                one_way_delay_s=0.0,
                status=OK if number > failed_count else status,
            )
            for number in range(1, 11)
        ]
        return answer_from(found, QUESTION, Objective(), tried).cautions

    assert cautions(2, "out_of_memory") == ()
    assert names(cautions(5, "out_of_memory"), "5 of 10", "out_of_memory")
    assert cautions(5, "agent_lost") == ()


def test_intervals_that_are_apart_do_not_overlap() -> None:
    """A surely faster one may not be recommended, since it computes other updates."""
    single = known(5.0, 1.05, strategy="single", world_size=1)
    averaging = known(1.0, 1.05, strategy="local_sgd", world_size=4, is_synchronous=False)
    answer = answered(single, averaging)
    assert answer.recommended is not None
    assert answer.recommended.strategy == "single"
    assert not any("overlaps" in warning for warning in answer.warnings)
    assert any("local_sgd" in warning and "faster" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, False) for name in ("async ps", "ASGD", "local-sgd", "LocalSGD", "Hogwild!")),
        *((name, False) for name in ("stale synchronous", "ps_async", "gossip", "DiLoCo")),
        *((name, True) for name in ("ddp", "horovod", "ring", "ps", None, "assp", "localhost")),
    ],
)
def test_a_strategy_that_the_farm_does_not_have_is_known_by_its_name(
    name: str | None, expected: bool
) -> None:
    assert trains_alike({}, name) is expected


def test_one_of_three_alike_is_no_firm_answer() -> None:
    answer = answered(*(known(1.0, world_size=size) for size in (2, 4, 8)))
    assert answer.best_probability == pytest.approx(1 / 3, abs=0.01)
    assert not answer.is_firm


def test_the_probability_is_that_of_drawing_the_smallest_score() -> None:
    options = rank([known(1.0, 1.2), known(1.1, 1.5), known(1.3, 2.0)], Objective())
    draw = random.Random(1)

    def drawn(one: Option) -> float:
        assert one.step_time_s
        assert one.step_high_s
        factor = one.step_high_s / one.step_time_s
        return one.step_time_s * math.exp(math.log(factor) * draw.gauss() / 1.6449)

    trials = 5_000
    wins = sum(min(options, key=drawn) is options[0] for _ in range(trials))
    # Drawn anew in each trial, as `min` asks the key of each option once.
    assert best_probability(options, options[0]) == pytest.approx(wins / trials, abs=0.02)


def test_without_an_interval_nothing_is_said_of_the_probability() -> None:
    answer = answered(known(1.0), option("ring", 2.0, step_time_s=2.0, world_size=2))
    assert answer.best_probability is None
    assert not answered(option("ring", 2.0, step_time_s=2.0)).is_firm


def test_options_that_differ_in_framework_or_network_alone_are_told_apart() -> None:
    same = {"strategy": "ddp", "world_size": 8, "instance_type": "m5.large"}
    answer = answered(
        known(1.0, 1.3, **same, framework="torch", network="infiniband"),
        known(1.01, 1.3, **same, framework="tf", network="infiniband"),
        known(1.02, 1.3, **same, framework="tf", network="ethernet"),
        known(9.0, 1.3, strategy="single", framework="tf", network=None),
    )
    best, other = "torch, network infiniband", "tf, network infiniband"
    assert best in answer.headline.partition(":")[0]
    [overlap] = [w for w in answer.warnings if "overlaps" in w]
    begin, _, end = overlap.partition("runner-up")
    assert best in begin
    assert other in end
    columns = option_columns(option_lines(answer.options, QUESTION))
    assert {"framework", "network"} <= {column.title for column, _ in columns}
    assert len(set(naming_texts(answer))) == 4


@pytest.mark.parametrize("field", ["framework", "setup", "network", "instance_type"])
@pytest.mark.parametrize("is_named_first", [True, False])
def test_options_of_which_one_leaves_an_axis_unnamed_are_told_apart(
    field: str, is_named_first: bool
) -> None:
    values = ["packed", None] if is_named_first else [None, "packed"]
    made: Callable[[str | None], object] = Setup.read if field == "setup" else lambda value: value
    answer = answered(
        *(
            known(1.0 + n / 100, 1.3, strategy="ddp", world_size=8, **{field: made(value)})
            for n, value in enumerate(values)
        ),
        known(9.0, 1.3, strategy="single"),
    )
    shown = {"packed": "packed", None: f"unnamed {published_name(field).replace('_', ' ')}"}
    best, other = (shown[value] for value in values)
    assert best in answer.headline.partition(":")[0]
    [overlap] = [w for w in answer.warnings if "overlaps" in w]
    begin, _, end = overlap.partition("runner-up")
    assert best in begin
    assert other in end
    names = way_names(answer.options).values()
    assert len(set(names)) == len(names) == 3
    assert any(best in name for name in names)
    assert any(other in name for name in names)
    assert len(set(naming_texts(answer))) == 3


def test_what_another_strategy_names_is_not_said_to_be_unnamed() -> None:
    answer = answered(
        known(1.0, 1.3, strategy="mwms_ring", world_size=2),
        known(2.0, 1.3, strategy="ps", world_size=2, server_count=1, setup=Setup.read("apart")),
    )
    assert answer.headline.startswith("world size 2 (mwms_ring): ")


def test_servers_and_set_ups_tell_options_apart() -> None:
    answer = answered(
        known(1.0, strategy="ps", world_size=4, server_count=1, setup=Setup.read("hard")),
        known(2.0, strategy="ps", world_size=4, server_count=2),
    )
    assert answer.headline.startswith("world size 4 and 1 server (ps, hard): ")
    columns = option_columns(option_lines(answer.options, QUESTION))
    assert "servers" in [column.title for column, _ in columns]
    assert len(set(naming_texts(answer))) == 2


def test_training_that_computes_other_updates_does_not_win_by_time_alone() -> None:
    ring = known(1.0, strategy="mwms_ring", world_size=2)
    averaging = known(0.5, strategy="local_sgd", world_size=2, is_synchronous=False)
    answer = answered(ring, averaging)
    assert answer.recommended is not None
    assert answer.recommended.strategy == "mwms_ring"
    assert names([w for w in answer.warnings if "--target-accuracy" in w], "local_sgd")
    alone = answered(averaging)
    assert alone.cautions[0].startswith("local_sgd")


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [("precision=bfloat16", True), ("hard, ranks_per_agent=2, batch_split=by_speed", False)],
)
def test_options_that_differ_in_what_they_learn_are_named(text: str, *, is_warned: bool) -> None:
    usual, other = (known(1.0, world_size=2), known(0.5, world_size=2, setup=Setup.read(text)))
    warnings = [w for w in answered(usual, other).warnings if "--target-accuracy" in w]
    assert names(warnings, "the usual ones", text) is is_warned


def test_with_a_target_accuracy_all_strategies_compete_by_the_time_to_it() -> None:
    ring = known(1.0, strategy="mwms_ring", world_size=2)
    averaging = known(0.5, strategy="local_sgd", world_size=2, is_synchronous=False)
    question = Question(global_batch_size=64, target_accuracy_ratio=0.9)
    found = Options(options=(ring, averaging), warnings=())
    answer = answer_from(found, question, Objective(), [evidence(1)])
    assert answer.recommended is not None
    assert answer.recommended.strategy == "local_sgd"
    assert answer.is_firm
    assert not any("--target-accuracy" in warning for warning in answer.warnings)


def untimed(option: Option) -> Option:
    return dataclasses.replace(option, time_s=None, time_per_epoch_s=None)


def answered_within(objective: Objective, *options: Option) -> Recommendation:
    return answer_from(Options(options=options, warnings=()), QUESTION, objective, [evidence(1)])


@pytest.mark.parametrize(
    ("objective", "rival", "why"),
    [
        (Objective(), {"epoch_count": 1}, "time"),
        (Objective(beta=1.0), {"cost_usd": None}, "cost"),
        (Objective(budget_usd=10.0), {"cost_usd": None}, "cost"),
        (Objective(min_accuracy_ratio=0.5), {"accuracy": None}, "accuracy"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_what_may_be_better_and_cannot_be_judged_is_said(
    objective: Objective, rival: dict[str, Any], why: str, is_known: bool
) -> None:
    every: dict[str, Any] = {"cost_usd": 1.0, "price_usd_per_hour": 1.0, "accuracy": 0.9}
    own = known(1.0, **every, world_size=1, epoch_count=1)
    own = dataclasses.replace(own, step_time_s=None, low_s=0.95, high_s=1.05)
    unpriced = {"price_usd_per_hour": None} if why == "cost" else {}
    changes = {**every, **({} if is_known else {**unpriced, **rival}), "world_size": 2}
    other = known(0.5 if not is_known else 2.0, **changes)
    if why == "time" and not is_known:
        other = untimed(other)
    third = known(3.0, **every, world_size=4)
    answer = answered_within(objective, own, other, third)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 1
    assert answer.is_firm is is_known
    assert (answer.best_probability is None) is not is_known
    assert names(answer.cautions, "1 option", f"the {why} is not known") is not is_known
    assert len(answer.cautions) == (0 if is_known else 1)


def test_what_is_surely_slower_is_no_loss_where_its_price_is_not_known() -> None:
    priced = {"cost_usd": 1.0, "price_usd_per_hour": 1.0}
    options = known(1.0, **priced, world_size=1), known(0.9, **priced, world_size=2)
    slow = known(5.0, world_size=4)
    assert answered_within(Objective(beta=1.0), *options, slow).cautions == ()


def test_a_rival_without_an_interval_is_no_firm_answer() -> None:
    bare = option("ring", 2.0, step_time_s=2.0, world_size=2)
    answer = answered(known(1.0), bare)
    assert answer.best_probability is None
    assert names(answer.cautions, "1 option", "varies")
    assert not answer.is_firm


def test_steps_are_compared_where_only_some_epochs_are_known() -> None:
    with_epochs = known(1.0, world_size=1, epoch_count=1)
    steps = untimed(known(0.5, world_size=2, epoch_count=1))
    answer = answered(with_epochs, steps)
    assert [o.score for o in answer.options] == [0.5, 1.0]
    assert answer.is_firm


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"accuracy": None, "accuracy_epochs": 100},
            ("after 100 epochs", "10"),
        ),
        (
            {"accuracy": 0.4, "accuracy_epochs": 1},
            ("0.4", "1 epoch"),
        ),
    ],
)
def test_an_accuracy_after_other_epochs_than_asked_for_is_not_known(
    fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    single = known(1.0, world_size=1, epoch_count=10, accuracy=0.95, accuracy_epochs=10)
    gang = known(0.5, world_size=2, epoch_count=10, **fields)
    answer = answered_within(Objective(min_accuracy_ratio=0.9), single, gang)
    assert names([answer.options[1].excluded_because or ""], *words)
    assert names(answer.cautions, "1 option", "accuracy")


def test_an_accuracy_after_fewer_epochs_is_taken_for_a_lower_bound_and_that_is_said() -> None:
    single = known(1.0, world_size=1, epoch_count=10, accuracy=0.95, accuracy_epochs=10)
    gang = known(0.5, world_size=2, epoch_count=10, accuracy=0.92, accuracy_epochs=5)
    answer = answered_within(Objective(min_accuracy_ratio=0.9), single, gang)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2
    assert names([w for w in answer.warnings if "lower bound" in w], "5 epochs", "10")


def test_accuracies_after_unequal_epochs_are_not_compared() -> None:
    single = known(1.0, world_size=1, epoch_count=10, accuracy=0.95, accuracy_epochs=10)
    gang = known(0.5, world_size=2, epoch_count=10, accuracy=0.4, accuracy_epochs=1)
    answer = answered(single, gang)
    assert answer.cautions == ()
    assert answer.pareto == (gang_of(answer),)
    equal = dataclasses.replace(gang, accuracy_epochs=10)
    assert len(answered(single, equal).cautions) == 1
    assert len(answered(single, equal).pareto) == 2


def gang_of(answer: Recommendation) -> Option:
    [gang] = [option for option in answer.options if option.world_size == 2]
    return gang


def test_failures_at_the_nearest_conditions_count_where_it_was_not_measured_as_asked() -> None:
    gang = known(0.5, world_size=2, basis="interpolated")
    found = Options(options=(known(1.0, world_size=1), gang), warnings=())

    def cautions(status: str, *failing_batches: int) -> tuple[str, ...]:
        tried = [
            evidence(
                10 * batch + number,
                strategy="ring",
                world_size=2,
                one_way_delay_s=0.0,
                global_batch_size=batch,
                status=status if batch in failing_batches and number else OK,
            )
            for batch in (16, 32, 128, 256)
            for number in range(3)
        ]
        return answer_from(found, QUESTION, Objective(), tried).cautions

    assert names(cautions("nonfinite_loss", 32, 128), "4 of 6", "nearest", "nonfinite_loss")
    assert cautions("nonfinite_loss", 16, 256) == ()
    assert cautions("agent_lost", 32, 128) == ()
    assert cautions("out_of_memory", 128, 256) == ()
    assert len(cautions("out_of_memory", 32)) == 1


@pytest.mark.parametrize("limit", ["deadline_s", "budget_usd"])
def test_what_may_be_within_a_limit_and_be_better_leaves_no_sure_answer(limit: str) -> None:
    what = {"deadline_s": "time", "budget_usd": "cost"}[limit]
    ends = {"time_high_s": 2.1, "cost_high_usd": 2.1, "cost_usd": 0.5}
    wide = known(0.5, **ends, world_size=2)
    options = known(1.0, cost_usd=0.1, world_size=1), known(1.5, cost_usd=0.1, world_size=4), wide
    limits: dict[str, Any] = {limit: 2.0}
    answer = answered_within(Objective(**limits), *options)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 1
    assert answer.best_probability is None
    assert names(answer.cautions, "1 option", what, limit)
    limits = {limit: 2.2}
    assert answered_within(Objective(**limits), *options).is_firm


@pytest.mark.parametrize(("disturbed_count", "is_said"), [(3, True), (2, False)])
def test_a_rival_that_is_predicted_from_disturbed_measurements_is_a_reason_for_caution(
    disturbed_count: int, is_said: bool
) -> None:
    options = known(1.0, world_size=1), known(2.0, world_size=4, basis="interpolated")
    elsewhere = [
        evidence(
            10 + number,
            strategy="ring",
            world_size=4,
            global_batch_size=32 * number,
            fingerprint=None,
            disturbance=Disturbance(weight=0.1) if number <= disturbed_count else UNDISTURBED,
        )
        for number in (1, 2, 3)
    ]
    found = Options(options=options, warnings=())
    answer = answer_from(found, QUESTION, Objective(), elsewhere)
    assert names(answer.cautions, "1 option", "disturbed") is is_said
    assert len(answer.cautions) == is_said
