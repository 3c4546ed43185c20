import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec, NotFound
from farm.recommend.cache.fits import Fits
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.configuration import Observation
from farm.recommend.contracts import Objective, Question, Recommendation, StepTimeModel
from farm.recommend.prices import Price, Prices
from farm.recommend.service import recommend
from farm.store.result_tables import EpochRow
from farm.text.display import decimal
from tests.factories import add_measurement
from tests.facts import lacking
from tests.fakes.step_times import FakeStepTimes

SMALL = Price(
    instance_type="small",
    region="here",
    usd_per_hour=3600.0,
    date=dt.date(2026, 3, 1),
    source="a test",
)
EPOCH = 1437 / 32  # steps: the examples of `digits`, and a batch of 32


def measured(session: Session, key: str, *, world_size: int = 1, **changes: Any) -> int:
    fields: dict[str, Any] = {
        "world_size": world_size,
        "strategy": "single" if world_size == 1 else "mwms_ring",
        "steps_per_epoch": 45,
        "fingerprint": "f" * 64,
    }
    return add_measurement(session, key, **{**fields, **changes})


def ask(session: Session, *, objective: Objective | None = None, **changes: Any) -> Recommendation:
    question = Question(**{"global_batch_size": 32, **changes})
    return recommend(session, question=question, objective=objective or Objective())


def test_the_fastest_measured_world_size_is_recommended_with_its_evidence(session: Session) -> None:
    measured(session, "job 1", step_time_s=0.1)
    fast = measured(session, "job 2", world_size=2, step_time_s=0.06)
    measured(session, "job 3", world_size=3, step_time_s=0.08)
    answer = ask(session)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2
    assert answer.recommended.time_per_epoch_s == pytest.approx(0.06 * EPOCH)
    assert answer.recommended.measurement_ids == (fast,)
    assert [option.world_size for option in answer.options] == [2, 3, 1]
    assert answer.reason is None


def test_the_energy_that_was_measured_is_part_of_the_answer(session: Session) -> None:
    measured(session, "job 1", details={"quantities": {"energy_per_step_j": 5.0}})
    measured(session, "job 2", world_size=2, step_time_s=0.06)
    answer = json.loads(json.dumps(ask(session).to_json()))
    assert answer["fastest"]["world_size"] == 2
    # 50 W for as long as an epoch takes; of two machines nobody knows it.
    assert answer["least_energy"]["world_size"] == 1
    assert answer["least_energy"]["energy_j"] == pytest.approx(50 * 0.1 * EPOCH)
    assert {o["energy_j"] is None for o in answer["options"] if o["world_size"] == 2} == {True}
    assert answer["least_unknown_because"].keys() == {"cheapest"}


def test_the_answer_is_json_in_the_documented_shape(session: Session) -> None:
    measured(session, "job 1")
    answer = json.loads(json.dumps(ask(session).to_json()))
    assert {"recommended", "reason", "options", "pareto", "warnings"} <= set(answer)
    documented = {
        "world_size",
        "strategy",
        "instance_type",
        "time_per_epoch_s",
        "low_s",
        "high_s",
        "low80_s",
        "high80_s",
        "cost_usd",
        "basis",
        "measurement_ids",
    }
    assert documented <= set(answer["recommended"])
    assert answer["recommended"] == answer["options"][0] == answer["pareto"][0]
    assert (answer["recommended"]["basis"], answer["recommended"]["cost_usd"]) == ("measured", None)


def test_an_empty_farm_recommends_nothing_and_says_why(session: Session) -> None:
    answer = ask(session, model="mlp", dataset="digits")
    assert answer.recommended is None
    assert lacking(answer.reason, "nothing", "mlp", "digits", "origin farm") == []
    assert (answer.options, answer.pareto) == ((), ())


def test_another_batch_size_is_not_guessed(session: Session) -> None:
    measured(session, "job 1")
    measured(session, "job 2", global_batch_size=64)
    measured(session, "job 3", global_batch_size=128, status="out_of_memory", step_time_s=None)
    answer = ask(session, global_batch_size=48)
    assert answer.recommended is None
    assert lacking(answer.reason, "global_batch_size 48", "measured: 32, 64") == []


def test_where_everything_failed_there_is_nothing_to_recommend(session: Session) -> None:
    measured(session, "job 1", status="out_of_memory", step_time_s=None)
    answer = ask(session)
    assert answer.recommended is None
    facts = ("mlp", "digits", "origin farm", "failed", "out_of_memory")
    assert lacking(answer.reason, "every measurement", *facts) == []
    [warning] = answer.warnings
    assert lacking(warning, "single", "world_size 1", "out_of_memory", "1 of 1") == []


def test_one_machine_is_considered_at_every_delay_and_the_lack_of_gangs_is_said(
    session: Session,
) -> None:
    measured(session, "job 1")
    measured(session, "job 2", world_size=2, one_way_delay_s=0.01, step_time_s=0.01)
    answer = ask(session, one_way_delay_s=0.05)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 1
    [warning] = [w for w in answer.warnings if "gang" in w]
    assert lacking(warning, "only one machine", "10.0 ms") == []


def test_a_name_that_was_never_measured_is_told_with_those_that_were(session: Session) -> None:
    measured(session, "job 1", world_size=2, instance_type="small")
    choices: list[tuple[dict[str, Any], str, str]] = [
        ({"strategies": ("other",)}, "strategy", "mwms_ring"),
        ({"networks": ("other",)}, "network", "unnamed"),
        ({"instance_types": ("other",)}, "instance_type", "small"),
    ]
    for choice, name, known in choices:
        answer = ask(session, **choice)
        assert answer.reason is not None
        assert answer.reason.endswith(f"is not measured with {name} 'other', but with {known}")
    measured(session, "job 2", instance_type="small")
    [warning] = [w for w in ask(session, strategies=("other",)).warnings if "strategy 'other'" in w]
    assert warning.startswith("only one machine")


def test_a_workload_left_out_is_found_where_there_is_only_one(session: Session) -> None:
    measured(session, "job 1")
    answer = ask(session)
    assert (answer.model, answer.dataset) == ("mlp", "digits")


def test_one_of_several_workloads_must_be_named(session: Session) -> None:
    measured(session, "job 1")
    measured(session, "job 2", model="small_cnn")
    with pytest.raises(InvalidSpec, match=r"^model: expected one of mlp, small_cnn, got None"):
        ask(session)
    assert ask(session, model="mlp").recommended is not None
    measured(session, "job 3", dataset="mnist")
    with pytest.raises(InvalidSpec, match=r"^dataset: expected one of digits, mnist, got None"):
        ask(session, model="mlp")


def test_origins_are_never_pooled(session: Session) -> None:
    measured(session, "job 1", step_time_s=0.1)
    measured(session, "row 1", origin="study", step_time_s=0.001)
    answer = ask(session)
    assert answer.recommended is not None
    assert answer.recommended.step_time_s == 0.1


def test_an_unknown_origin_is_an_error_not_an_answer(session: Session) -> None:
    measured(session, "job 1")
    with pytest.raises(NotFound, match=r"^origin 'study': nothing of it is in this store"):
        ask(session, origin="study")


def test_an_origin_without_the_workload_is_an_answer(session: Session) -> None:
    measured(session, "row 1", origin="study")
    assert ask(session, origin="study", model="small_cnn").recommended is None


def test_forward_only_measurements_do_not_answer_for_training(session: Session) -> None:
    measured(session, "job 1", training_pass="forward")
    assert ask(session).recommended is None


def test_outside_every_limit_nothing_is_recommended_but_all_is_shown(session: Session) -> None:
    measured(session, "job 1", step_time_s=0.1)
    answer = ask(session, objective=Objective(deadline_s=1.0))
    assert answer.recommended is None
    assert answer.reason is not None
    assert "takes 4.49063 s, longer than deadline_s = 1" in answer.reason
    assert len(answer.options) == 1


def test_a_price_of_an_instance_type_makes_a_cost(session: Session) -> None:
    measured(session, "job 1", instance_type="small", step_time_s=0.1)
    question = Question(global_batch_size=32, epochs=10)
    answer = recommend(
        session,
        question=question,
        objective=Objective(beta=1.0),
        prices=Prices(by_type={"small": SMALL}),
    )
    assert answer.recommended is not None
    assert answer.recommended.cost_usd == pytest.approx(EPOCH)
    assert answer.recommended.score == pytest.approx(2 * EPOCH)


def test_unknown_prices_are_said_once_cost_counts(session: Session) -> None:
    measured(session, "job 1")
    assert not any("price" in warning for warning in ask(session).warnings)
    answer = ask(session, objective=Objective(beta=1.0))
    assert any("price" in warning for warning in answer.warnings)
    assert answer.recommended is not None


def remembering(session: Session, fits: Fits | None = None, **changes: Any) -> Recommendation:
    question = Question(**{"global_batch_size": 32, "one_way_delay_s": 0.02, **changes})
    cache = RecommenderCache(fits or Fits(FakeStepTimes.fit))
    return recommend(session, question=question, objective=Objective(), cache=cache)


def test_with_a_memory_what_was_not_measured_as_asked_is_predicted(session: Session) -> None:
    one = measured(session, "job 1", step_time_s=0.32)
    measured(session, "job 2", world_size=2, one_way_delay_s=0.01, step_time_s=0.241)
    answer = remembering(session)
    assert [(o.world_size, o.basis) for o in answer.options] == [
        (1, "measured"),
        (2, "interpolated"),
    ]
    assert answer.options[0].measurement_ids == (one,)
    assert answer.options[1].step_time_s == pytest.approx(0.16 + 0.16 + 0.001)
    assert (answer.predictor, answer.predictor_measurement_count) == ("fake", 2)
    assert answer.measurement_count == 2


def test_what_is_within_the_doubt_of_the_best_is_said(session: Session) -> None:
    measured(session, "job 1", step_time_s=0.32)
    measured(session, "job 2", world_size=2, one_way_delay_s=0.01, step_time_s=0.241)
    [warning] = remembering(session).warnings
    best, _, runner_up = warning.partition("overlaps")
    both = ("10.8 s to 18.0 s",)
    assert lacking(best, "90 %", "single", "world_size 1", *both) == []
    assert lacking(runner_up, "mwms_ring", "world_size 2", *both) == []
    assert not any("overlaps" in w for w in remembering(session, one_way_delay_s=0.2).warnings)


def test_where_cost_counts_the_sums_that_were_compared_are_shown(session: Session) -> None:
    measured(session, "job 1", instance_type="small", step_time_s=0.32)
    measured(session, "job 2", world_size=2, instance_type="small", step_time_s=0.12)
    answer = recommend(
        session,
        question=Question(global_batch_size=32),
        objective=Objective(alpha=0.0, beta=1.0),
        prices=Prices(by_type={"small": SMALL}),
        cache=RecommenderCache(Fits(FakeStepTimes.fit)),
    )
    [overlap] = [warning for warning in answer.warnings if "overlaps" in warning]
    best, other = answer.options[:2]
    assert best.score is not None
    assert other.score is not None
    assert f"({decimal(0.75 * best.score)} to {decimal(1.25 * best.score)} as alpha x" in overlap
    assert f"({decimal(0.75 * other.score)} to {decimal(1.25 * other.score)} as alpha x" in overlap


def test_a_prediction_that_is_recommended_is_no_measurement_and_that_is_said(
    session: Session,
) -> None:
    measured(session, "job 1", step_time_s=0.32)
    measured(session, "job 2", world_size=2, one_way_delay_s=0.02, step_time_s=0.321)
    answer = remembering(session, one_way_delay_s=0.0)
    assert answer.recommended is not None
    assert answer.recommended.world_size == 2
    assert any(not lacking(w, "not measured", "interpolated") for w in answer.warnings)


def test_kinds_of_hardware_are_fitted_apart_and_by_workload(session: Session) -> None:
    fitted: list[list[int]] = []

    def fit(known: Sequence[Observation]) -> StepTimeModel:
        fitted.append([o.measurement_id for o in known])
        return FakeStepTimes.fit(known)

    first = measured(session, "job 1", step_time_s=0.32)
    forward = measured(session, "job 2", training_pass="forward", step_time_s=0.1)
    measured(session, "job 3", fingerprint="another", step_time_s=0.2, global_batch_size=64)
    measured(session, "job 4", model="small_cnn", step_time_s=0.2)
    measured(session, "row 5", origin="study", step_time_s=0.2)
    remembering(session, Fits(fit), model="mlp")
    assert fitted == [[first, forward]]


def test_a_new_measurement_is_seen_and_predicted_from(session: Session) -> None:
    cache = RecommenderCache(Fits(FakeStepTimes.fit))
    question = Question(global_batch_size=32)
    measured(session, "job 1", step_time_s=0.32)
    counts = []
    for key in ("job 2", "job 3"):
        answer = recommend(session, question=question, objective=Objective(), cache=cache)
        counts.append((answer.measurement_count, answer.predictor_measurement_count))
        measured(session, key, world_size=2, step_time_s=0.2)
    assert counts == [(1, 1), (2, 2)]


def test_what_predictions_lack_is_said(session: Session) -> None:
    def fit(known: Sequence[Observation]) -> StepTimeModel:
        raise ModuleNotFoundError(name="numpy")

    measured(session, "job 1", step_time_s=0.32)
    answer = remembering(session, Fits(fit))
    assert answer.recommended is not None
    assert any("only what was measured is compared" in w for w in answer.warnings)


def test_a_target_accuracy_decides_how_long_to_train(session: Session) -> None:
    def trained(key: str, token: int, accuracies: list[float], **changes: Any) -> None:
        measured(session, key, attempt_id=token, epochs=len(accuracies), **changes)
        session.add_all(
            EpochRow(
                attempt_id=token,
                rank=0,
                epoch=number,
                train_s=1.0,
                step_count=45,
                val_accuracy_ratio=accuracy,
            )
            for number, accuracy in enumerate(accuracies)
        )
        session.flush()

    trained("job 1", 11, [0.5, 0.8, 0.9], step_time_s=0.1)
    measured(session, "job 2", world_size=2, step_time_s=0.06)
    answer = ask(session, target_accuracy_ratio=0.75)
    assert [(o.world_size, o.epoch_count, o.accuracy) for o in answer.options] == [
        (2, 2, 0.8),
        (1, 2, 0.8),
    ]
    assert answer.options[0].time_s == pytest.approx(0.06 * EPOCH * 2)
    never = ask(session, target_accuracy_ratio=0.95)
    assert never.recommended is None
    assert lacking(never.reason, "no option", "at most 0.9", "3 epochs") == []
