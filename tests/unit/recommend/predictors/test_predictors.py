"""What every predictor promises, whatever it does inside."""

from __future__ import annotations

import dataclasses
import random

import pytest

from farm.configuration.spec import TrainingPass
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors import DEFAULT_PREDICTOR, PREDICTORS
from farm.recommend.predictors.contracts import FittedPredictor, Predictor
from tests.truths.synthetic_steps import configuration, grid, law, measure

MEASURED = measure(grid(world_sizes=(1, 2, 4), batches=(64, 256, 1024), delays_s=(0.0, 0.02, 0.04)))

every = pytest.mark.parametrize("predictor", PREDICTORS.values(), ids=PREDICTORS.keys())


@pytest.fixture(scope="module")
def fitted() -> dict[str, FittedPredictor]:
    return {name: predictor.fit(MEASURED) for name, predictor in PREDICTORS.items()}


def times_s(predictor: FittedPredictor, *requested: Configuration) -> list[float | None]:
    return [estimate.step_time_s for estimate in predictor.predict(requested)]


def test_predictors_are_known_by_their_own_names() -> None:
    assert {name: p.name for name, p in PREDICTORS.items()} == {name: name for name in PREDICTORS}
    assert DEFAULT_PREDICTOR in PREDICTORS


@every
def test_what_was_measured_is_predicted_about_as_measured(
    predictor: Predictor, fitted: dict[str, FittedPredictor]
) -> None:
    found = fitted[predictor.name].predict([o.configuration for o in MEASURED])
    errors = [
        abs(estimate.step_time_s / law(o.configuration) - 1)
        for estimate, o in zip(found, MEASURED, strict=True)
        if estimate.step_time_s is not None
    ]
    assert len(errors) == len(MEASURED)
    assert sorted(errors)[len(errors) // 2] < 0.1


@every
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "ps"}, "strategy: nothing was measured with 'ps'"),
        ({"network": "infiniband"}, "network: nothing was measured with 'infiniband'"),
        ({"instance_type": "m5"}, "instance_type: nothing was measured with 'm5'"),
        ({"training_pass": TrainingPass.FORWARD}, "training_pass: nothing was measured with 'for"),
        ({"packet_loss_ratio": 0.01}, "packet_loss_ratio: measured at 0.0 only"),
    ],
)
def test_of_what_has_no_data_nothing_is_guessed(
    predictor: Predictor,
    fitted: dict[str, FittedPredictor],
    changes: dict[str, object],
    reason: str,
) -> None:
    requested = dataclasses.replace(configuration(2, 256, 0.02), **changes)  # type: ignore[arg-type]
    known, unknown = fitted[predictor.name].predict([configuration(2, 256, 0.02), requested])
    assert known.step_time_s is not None
    assert unknown.step_time_s is None
    assert unknown.unknown_because is not None
    assert unknown.unknown_because.startswith(reason)


@every
def test_one_machine_never_depends_on_the_network(
    predictor: Predictor, fitted: dict[str, FittedPredictor]
) -> None:
    alone = configuration(1, 200)
    far = dataclasses.replace(
        alone, network="satellite", one_way_delay_s=0.3, jitter_s=0.1, packet_loss_ratio=0.05
    )
    near, distant = times_s(fitted[predictor.name], alone, far)
    assert near is not None
    assert near == distant


@every
def test_gangs_are_unknown_to_who_saw_single_machines_only(predictor: Predictor) -> None:
    alone = [o for o in MEASURED if o.configuration.is_one_machine]
    one, gang = predictor.fit(alone).predict([configuration(1, 100), configuration(2, 100)])
    assert one.step_time_s is not None
    assert gang.unknown_because == "strategy: only one machine was measured with 'mwms_ring'"


@every
def test_how_a_pipeline_divides_over_other_ranks_is_not_guessed(predictor: Predictor) -> None:
    rings = [configuration(n, batch) for n in (2, 4) for batch in (64, 256, 1024)]
    pipelines = [dataclasses.replace(ring, strategy="torch_pipeline") for ring in rings]
    fit = predictor.fit([*MEASURED, *measure(pipelines)])
    seen = dataclasses.replace(pipelines[0], global_batch_size=128)
    unseen = dataclasses.replace(seen, world_size=3)
    ring = dataclasses.replace(unseen, strategy="mwms_ring")
    seen_s, unseen_s, ring_s = fit.predict([seen, unseen, ring])
    assert seen_s.step_time_s is not None
    assert ring_s.step_time_s is not None
    assert unseen_s.unknown_because is not None
    assert unseen_s.unknown_because.startswith("world_size: model")
    assert unseen_s.unknown_because.endswith("was not measured in 3 stages with 'torch_pipeline'")


@every
@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_measurements_say_nothing_and_raise_nothing(
    predictor: Predictor, count: int
) -> None:
    few = [*MEASURED[:count], *MEASURED[:count]]
    [estimate] = predictor.fit(few).predict([MEASURED[0].configuration])
    configurations = "1 configuration was" if count == 1 else f"{count} configurations were"
    assert estimate.unknown_because == f"only {configurations} measured"
    assert predictor.fit(few).predict([]) == []


@every
def test_three_measurements_are_enough_for_an_answer(predictor: Predictor) -> None:
    three = measure([configuration(1, 64), configuration(2, 64, 0.02), configuration(4, 256)])
    [estimate] = predictor.fit(three).predict([configuration(2, 256, 0.02)])
    assert estimate.step_time_s is not None
    assert 0.001 < estimate.step_time_s < 10


@every
def test_the_order_of_the_measurements_changes_nothing(
    predictor: Predictor, fitted: dict[str, FittedPredictor]
) -> None:
    shuffled = list(MEASURED)
    random.Random(1).shuffle(shuffled)
    requested = [configuration(3, 512, 0.03), configuration(1, 100), configuration(4, 64, 0.04)]
    again = times_s(predictor.fit(shuffled), *requested)
    assert again == pytest.approx(times_s(fitted[predictor.name], *requested), rel=1e-4)


@every
def test_a_measurement_that_is_hardly_believed_hardly_counts(predictor: Predictor) -> None:
    requested = configuration(2, 256, 0.02)
    wrong = Observation(
        measurement_id=999, configuration=requested, step_time_s=20 * law(requested)
    )
    doubted = dataclasses.replace(wrong, weight=0.01)
    [time_s] = times_s(predictor.fit([*MEASURED, doubted]), requested)
    assert time_s == pytest.approx(law(requested), rel=0.25)


@every
def test_estimates_say_how_far_off_they_may_be(
    predictor: Predictor, fitted: dict[str, FittedPredictor]
) -> None:
    near, far = fitted[predictor.name].predict(
        [configuration(2, 256, 0.02), configuration(64, 16384, 0.5)]
    )
    assert 0 < near.log_scale <= far.log_scale
