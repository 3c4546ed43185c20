import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.recommend.answering.answer import answer_from
from farm.recommend.answering.options import Options, options_for
from farm.recommend.calibrated.step_time_model import fit_step_time_model
from farm.recommend.calibrated.suspicious import Suspicion, SuspicionKind
from farm.recommend.configuration import Observation
from farm.recommend.contracts import (
    Evidence,
    Objective,
    Option,
    Question,
    Recommendation,
    StepTimeModel,
)
from farm.recommend.setup import Setup
from tests.facts import lacking
from tests.fakes.step_times import HALF_WIDTH, FakeStepTimes
from tests.unit.recommend.answering.test_recommend_measured import QUESTION, evidence

ONE = evidence(1, step_time_s=0.64, time_per_epoch_s=12.8)
TWO = evidence(2, world_size=2, step_time_s=0.5, time_per_epoch_s=10.0)
FAR = evidence(3, world_size=4, one_way_delay_s=0.1)


def predicted(
    *known: Evidence,
    model: StepTimeModel | None = None,
    examples_count: int | None = None,
    **fields: Any,
) -> Options:
    question = Question(**{"global_batch_size": 64, "one_way_delay_s": 0.02, **fields})
    return options_for(
        known,
        question,
        examples_count=examples_count,
        prices_usd_per_hour={"small": 3.6},
        models=lambda _: model or FakeStepTimes(),
    )


def by_width(found: Options) -> dict[int, Option]:
    return {option.world_size: option for option in found.options}


def test_what_was_not_measured_as_asked_is_predicted_beside_what_was() -> None:
    options = by_width(predicted(ONE, TWO, FAR))
    assert {n: o.basis for n, o in options.items()} == {
        1: "measured",
        2: "measured",
        4: "interpolated",
    }
    # 16 examples for each of four replicas, four round trips of 40 ms; an epoch has 20 steps.
    assert options[4].step_time_s == pytest.approx(0.16 + 0.16 + 0.001)
    assert options[4].time_per_epoch_s == pytest.approx(0.321 * 20)
    assert options[4].high_s == pytest.approx(0.321 * 20 * (1 + HALF_WIDTH))
    assert options[4].repetition_count == 0


def test_an_epoch_is_as_long_whether_its_step_was_measured_or_predicted() -> None:
    bare = {"time_per_epoch_s": None, "steps_per_epoch": 2}
    known = (
        evidence(1, step_time_s=0.64, **bare),
        evidence(3, world_size=4, one_way_delay_s=0.1, **bare),
    )
    options = predicted(*known, examples_count=65).options
    assert {o.basis for o in options} == {"measured", "interpolated"}
    for option in options:
        assert option.step_time_s is not None
        assert option.time_per_epoch_s == pytest.approx(option.step_time_s * 65 / 64)
        assert option.steps_per_epoch == 2


def test_a_measured_time_stays_and_gets_the_models_interval() -> None:
    option = by_width(predicted(ONE, TWO))[2]
    assert option.time_per_epoch_s == 10.0
    assert option.low_s == pytest.approx(10.0 * (1 - HALF_WIDTH))
    assert option.step_high80_s == pytest.approx(0.5 * (1 + HALF_WIDTH / 2))
    assert option.measurement_ids == (2,)


def test_without_a_model_only_measured_configurations_are_options() -> None:
    found = options_for([ONE, TWO, FAR], QUESTION, examples_count=None, prices_usd_per_hour={})
    assert [o.world_size for o in found.options] == [1, 2]


def test_a_configuration_that_failed_as_asked_is_not_predicted_away() -> None:
    failed = evidence(4, world_size=4, status="time_limit", time_per_epoch_s=None, step_time_s=None)
    found = predicted(ONE, TWO, FAR, failed)
    assert set(by_width(found)) == {1, 2}
    assert any("time_limit in 1 of 1" in warning for warning in found.warnings)


def test_a_machine_that_failed_says_nothing_of_the_configuration() -> None:
    lost = evidence(4, world_size=4, status="agent_lost", time_per_epoch_s=None, step_time_s=None)
    assert set(by_width(predicted(ONE, TWO, FAR, lost))) == {1, 2, 4}


def test_what_the_model_does_not_know_is_said_once_for_all() -> None:
    other = evidence(4, world_size=2, strategy="other", one_way_delay_s=0.1)
    model = FakeStepTimes(unknown=frozenset({"other"}))
    found = predicted(ONE, TWO, FAR, other, model=model)
    assert {o.strategy for o in found.options} == {"single", "mwms_ring"}
    [warning] = [w for w in found.warnings if "never measured" in w]
    assert lacking(warning, "other with world_size 2", "other with world_size 4") == []


def test_a_measurement_that_is_hard_to_believe_counts_and_is_named() -> None:
    doubt = Suspicion(
        measurement_id=2, kind=SuspicionKind.FAR_OFF, message="ten times off", weight=0.1
    )
    elsewhere = dataclasses.replace(doubt, measurement_id=3)
    found = predicted(ONE, TWO, FAR, model=FakeStepTimes(suspicions=(doubt, elsewhere)))
    assert by_width(found)[2].time_per_epoch_s == 10.0
    [warning] = found.warnings
    assert lacking(warning, "mwms_ring", "world_size 2", "measurement 2", "ten times off") == []


def test_an_option_and_its_prediction_are_one_also_where_a_run_is_hard_to_believe() -> None:
    """The interval stays around the time that it was computed for."""
    times_s = {(n, batch): 0.02 + 1e-3 * batch / n for n in (1, 2, 4, 8) for batch in (32, 64, 128)}
    runs = [
        (cell, time_s * factor)
        for cell, time_s in times_s.items()
        for factor in ((1.0, 1.012, 0.99) if cell != (4, 64) else (1.6, 0.8))
    ]
    known = [
        evidence(
            i, world_size=n, global_batch_size=batch, step_time_s=time_s, time_per_epoch_s=None
        )
        for i, ((n, batch), time_s) in enumerate(runs, start=1)
    ]
    model = fit_step_time_model(
        [
            Observation(
                measurement_id=e.measurement_id,
                configuration=e.configuration,
                step_time_s=e.step_time_s,
            )
            for e in known
            if e.step_time_s is not None
        ]
    )
    option = by_width(predicted(*known, model=model))[4]
    assert {s.measurement_id for s in model.suspicions} & set(option.measurement_ids)
    [prediction] = model.predict(
        [next(e for e in known if e.measurement_id in option.measurement_ids).configuration]
    )
    for name in ("step_time_s", "low_s", "high_s", "low80_s", "high80_s"):
        own = getattr(option, name if name == "step_time_s" else f"step_{name}")
        assert own == pytest.approx(getattr(prediction, name))
    assert option.step_low_s is not None
    assert option.step_high_s is not None
    assert option.step_low_s <= 0.8 * times_s[4, 64]
    assert option.step_high_s >= 1.6 * times_s[4, 64]


def test_kinds_of_hardware_are_predicted_from_their_own_measurements() -> None:
    fingerprints: list[str | None] = []

    def models(fingerprint: str | None) -> StepTimeModel:
        fingerprints.append(fingerprint)
        return FakeStepTimes(scale=2.0 if fingerprint == "b" else 1.0)

    known = [
        evidence(1, instance_type="small", fingerprint="a", steps_per_epoch=1),
        evidence(2, instance_type="large", fingerprint="b", global_batch_size=128),
        evidence(3, instance_type="large", fingerprint="c", global_batch_size=128),
    ]
    found = options_for(
        known,
        Question(global_batch_size=64),
        examples_count=None,
        prices_usd_per_hour={},
        models=models,
    )
    assert fingerprints == ["a", "c"]
    assert {(o.instance_type, o.basis) for o in found.options} == {
        ("small", "measured"),
        ("large", "interpolated"),
    }
    assert {o.fingerprint for o in found.options} == {"a", "c"}


def test_a_prediction_costs_what_its_machines_cost() -> None:
    small = {"instance_type": "small"}
    option = by_width(predicted(evidence(1, **small), evidence(3, world_size=4, **small), epochs=2))
    assert option[4].cost_usd == pytest.approx(4 * option[4].time_s * 3.6 / 3600)  # type: ignore[operator] # it is known
    assert option[4].cost_high_usd == pytest.approx(option[4].cost_usd * (1 + HALF_WIDTH))  # type: ignore[operator] # so is this


def test_the_energy_of_a_training_is_its_power_for_its_time() -> None:
    # 50, 50 and 80 W; an epoch takes 2 x 10 s
    repetitions = [
        evidence(n, step_time_s=0.5, time_per_epoch_s=10.0, energy_per_step_j=energy_j)
        for n, energy_j in enumerate((25.0, 25.0, 40.0), start=1)
    ]
    option = by_width(predicted(*repetitions, epochs=2))[1]
    assert (option.power_w, option.energy_j) == (50.0, 50.0 * 20)
    assert option.time_high_s is not None
    assert option.energy_high_j == pytest.approx(50 * option.time_high_s)


def test_what_is_predicted_or_was_measured_without_energy_has_none() -> None:
    options = by_width(predicted(ONE, TWO, FAR))
    assert {(o.power_w, o.energy_j, o.energy_high_j) for o in options.values()} == {(None,) * 3}


def test_without_the_length_of_an_epoch_the_time_of_a_step_is_still_told() -> None:
    known = evidence(
        1, world_size=2, one_way_delay_s=0.1, time_per_epoch_s=None, steps_per_epoch=None
    )
    found = predicted(known)
    assert {o.time_per_epoch_s for o in found.options} == {None}
    assert all(o.step_time_s and o.step_low_s for o in found.options)
    assert found.warnings[-1].endswith("options are compared by the time of one step")


def test_an_epoch_is_as_long_as_the_measurements_say_not_the_data_set() -> None:
    of_steps = {"steps_per_epoch": 70, "time_per_epoch_s": 7.0}
    known = [evidence(n, global_batch_size=b, **of_steps) for n, b in ((1, 32), (2, 128))]
    [option] = predicted(*known, examples_count=60_000).options
    assert option.steps_per_epoch == 70
    assert option.time_per_epoch_s == pytest.approx(0.64 * 70)


def typed(instance_type: str, *world_sizes: int, fingerprint: str = "f") -> list[Evidence]:
    """One measurement of each world size."""
    return [
        evidence(
            100 * n + sum(map(ord, instance_type)),
            world_size=n,
            instance_type=instance_type,
            fingerprint=fingerprint,
        )
        for n in world_sizes
    ]


@given(
    world_sizes=st.sets(st.integers(2, 16), min_size=1, max_size=4),
    known=st.sets(st.sampled_from("ab"), min_size=1),
    alone=st.sets(st.sampled_from("xyz"), min_size=1),
    types=st.sets(st.sampled_from("abxyz")),
)
def test_gangs_of_a_type_known_on_one_machine_are_guesses(
    world_sizes: set[int], known: set[str], alone: set[str], types: set[str]
) -> None:
    evidence = [
        *(e for name in known for e in typed(name, 1, *world_sizes)),
        *(e for name in alone for e in typed(name, 1)),
    ]
    question = Question(
        global_batch_size=64, one_way_delay_s=0.02, instance_types=tuple(sorted(types))
    )
    found = options_for(
        evidence,
        question,
        examples_count=None,
        prices_usd_per_hour={},
        # Every gang seems a thousand times as fast as it was measured.
        models=lambda _: FakeStepTimes(scale=1e-3),
    )
    compared = (known | alone) & types if types else known | alone
    gangs = [o for o in found.options if not o.is_one_machine]
    assert {(o.instance_type, o.world_size) for o in gangs} == {
        (name, n) for name in compared for n in world_sizes
    }
    for option in gangs:
        why = f"no gang of {option.instance_type} was measured"
        assert option.speculative_because == (why if option.instance_type in alone else None)
    if not compared:
        return
    answer = answer_from(found, question, Objective(), evidence)
    assert answer.recommended is not None
    assert answer.recommended.basis == "measured"
    worth = {o.instance_type for o in answer.worth_measuring}
    assert worth <= alone
    assert bool(worth) == bool(alone & compared)


def test_gangs_of_another_kind_of_hardware_are_not_guessed() -> None:
    """Kinds of hardware are never pooled, so what is lacking is said."""
    known = [*typed("a", 1, 2, fingerprint="f"), *typed("x", 1, fingerprint="g")]
    found = predicted(*known)
    assert {o.instance_type for o in found.options if not o.is_one_machine} == {"a"}
    [warning] = found.warnings
    assert lacking(warning, "only one machine of x", "gangs") == []


def answer_of(found: Options) -> Recommendation:
    return answer_from(found, QUESTION, Objective(), [ONE, TWO])


def test_an_epoch_of_steps_is_scaled_as_the_measured_ones_are() -> None:
    """Measured epochs take twice their steps; else what has none would seem twice as fast."""
    single = evidence(1, step_time_s=0.64, time_per_epoch_s=25.6)
    only_steps = evidence(2, world_size=2, step_time_s=0.7, time_per_epoch_s=None)
    far = evidence(3, world_size=4, one_way_delay_s=0.1, time_per_epoch_s=4.0)
    found = predicted(single, only_steps, far)
    options = by_width(found)
    assert options[2].time_per_epoch_s == pytest.approx(28.0)
    assert options[4].time_per_epoch_s == pytest.approx(2 * 0.321 * 20)
    assert options[4].high_s == pytest.approx(2 * 0.321 * 20 * (1 + HALF_WIDTH))
    answer = answer_of(found)
    [caution] = answer.cautions
    assert lacking(caution, "2 times", "scaled") == []
    assert not answer.is_firm


def test_where_epochs_take_now_more_and_now_their_steps_the_step_is_compared() -> None:
    single = evidence(1, step_time_s=0.64, time_per_epoch_s=25.6)
    gang = evidence(2, world_size=2, step_time_s=0.5, time_per_epoch_s=10.0)
    found = predicted(single, gang, FAR)
    options = by_width(found)
    assert [options[n].time_per_epoch_s for n in (1, 2, 4)] == [25.6, 10.0, None]
    [warning] = found.warnings
    assert lacking(warning, "not known", "1 to 2 times", "time of one step") == []
    answer = answer_of(found)
    assert [o.score for o in answer.options] == pytest.approx([0.321, 0.5, 0.64])
    [caution] = answer.cautions
    assert lacking(caution, "1 to 2 times", "not known") == []


@pytest.mark.parametrize("epoch_s", [12.0, 12.8, 13.5])
def test_epochs_that_take_their_steps_are_no_reason_for_caution(epoch_s: float) -> None:
    single = evidence(1, step_time_s=0.64, time_per_epoch_s=epoch_s)
    found = predicted(single, TWO, FAR)
    assert found.cautions == ()
    assert by_width(found)[4].time_per_epoch_s == pytest.approx(0.321 * 20)


def test_where_all_epochs_were_measured_they_are_compared_as_they_are() -> None:
    long = evidence(2, world_size=2, step_time_s=0.5, time_per_epoch_s=20.0)
    assert predicted(ONE, long).cautions == ()


def test_a_partial_last_step_is_no_longer_epoch() -> None:
    """Two steps at most, of which the second may have a single example."""
    partial = evidence(1, step_time_s=0.64, steps_per_epoch=2, time_per_epoch_s=0.65)
    assert predicted(partial, FAR).cautions == ()


@pytest.mark.parametrize(
    ("trained", "is_told"),
    [
        ("precision=bfloat16", False),
        ("optimizer=adamw, learning_rate=0.001", False),
        (None, True),
        ("hard, server_placement=apart, compile=torch_compile", True),
    ],
)
def test_what_trains_in_another_way_says_nothing_of_an_accuracy(
    trained: str | None, *, is_told: bool
) -> None:
    known = evidence(1, world_size=2, strategy="torch_ddp", setup=Setup.read(trained))
    untrained = evidence(2, world_size=4, strategy="torch_ddp", time_per_epoch_s=1.0)
    found = options_for(
        [known, untrained],
        QUESTION,
        examples_count=None,
        prices_usd_per_hour={},
        curves={1: (0.9, 0.95)},
    )
    assert (by_width(found)[4].accuracy is not None) is is_told
