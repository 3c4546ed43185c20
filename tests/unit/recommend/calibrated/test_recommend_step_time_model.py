"""What a prediction rests on, and that its intervals are of the right kind."""

from __future__ import annotations

import math
from typing import Any

import pytest

from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.calibrated.step_time_model import CalibratedModel, fit_step_time_model
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Basis, Prediction
from farm.recommend.setup import Setup
from tests.truths.synthetic_steps import Lawful, configuration, grid, law, measure


def width(prediction: Prediction) -> float:
    assert prediction.low80_s is not None
    assert prediction.high80_s is not None
    return math.log(prediction.high80_s / prediction.low80_s)


@pytest.fixture(scope="module")
def model() -> CalibratedModel:
    """Fitted to one measurement of each of 65 configurations, one of which is left out."""
    known = [c for c in grid() if c != configuration(3, 256, 0.04)]
    return fit_step_time_model(measure(known), predictor=Lawful())


@pytest.mark.parametrize(
    ("world_size", "batch", "delay_s", "basis"),
    [
        (3, 256, 0.02, Basis.MEASURED),
        (1, 64, 0.5, Basis.MEASURED),
        (3, 256, 0.04, Basis.INTERPOLATED),
        (3, 300, 0.04, Basis.INTERPOLATED),
        (3, 256, 0.03, Basis.INTERPOLATED),
        (8, 256, 0.02, Basis.EXTRAPOLATED),
        (3, 2048, 0.02, Basis.EXTRAPOLATED),
        (3, 256, 0.1, Basis.EXTRAPOLATED),
    ],
)
def test_every_answer_says_on_what_it_rests(
    model: CalibratedModel, world_size: int, batch: int, delay_s: float, basis: Basis
) -> None:
    requested = configuration(world_size, batch, delay_s)
    [answer] = model.predict([requested])
    assert answer.basis is basis
    assert answer.step_time_s == pytest.approx(law(requested), rel=0.1)
    values = (answer.low_s, answer.low80_s, answer.step_time_s, answer.high80_s, answer.high_s)
    known = [value for value in values if value is not None]
    assert len(known) == 5
    assert known == sorted(known)


def test_a_strategy_without_data_is_unknown_and_says_why(model: CalibratedModel) -> None:
    [answer] = model.predict([configuration(3, 256, strategy="ps")])
    assert answer.basis is Basis.UNKNOWN
    assert answer.unknown_because == "strategy: not measured"
    assert (answer.step_time_s, answer.low_s, answer.high80_s) == (None, None, None)


def test_a_prediction_names_the_measurements_nearest_to_it(model: CalibratedModel) -> None:
    [answer] = model.predict([configuration(3, 256, 0.04)])
    near = {o.measurement_id: o.configuration for o in model.calibration.observations}
    assert configuration(3, 256, 0.02) in [near[i] for i in answer.measurement_ids]
    [own] = model.predict([configuration(3, 256, 0.02)])
    assert [near[i] for i in own.measurement_ids] == [configuration(3, 256, 0.02)]


def test_three_repetitions_speak_for_themselves() -> None:
    observations = measure(grid(batches=(64, 256)), repetitions=3)
    own = [o.step_time_s for o in observations if o.configuration == configuration(2, 64)]
    [answer] = fit_step_time_model(observations, predictor=Lawful()).predict([configuration(2, 64)])
    expected = prediction_interval(own, coverage_ratio=0.9)
    assert expected is not None
    assert answer.step_time_s == sorted(own)[1]
    assert (answer.low_s, answer.high_s) == (expected.low_s, expected.high_s)


def test_few_repetitions_borrow_how_much_others_vary() -> None:
    def noise(*, log_noise: float) -> float:
        # The predictor is off by half at one batch size, which is no noise.
        observations = [
            *measure(
                grid(batches=(64, 256)),
                repetitions=3,
                log_noise=lambda c: log_noise,
                time_s=lambda c: law(c) * (1.5 if c.global_batch_size == 256 else 1),
            ),
            *measure([configuration(2, 128)]),
        ]
        model = fit_step_time_model(observations, predictor=Lawful())
        [answer] = model.predict([configuration(2, 128)])
        assert answer.basis is Basis.MEASURED
        return width(answer)

    assert noise(log_noise=0.001) < 0.01
    assert noise(log_noise=0.05) > 0.1


def test_a_single_measurement_without_any_repetition_still_has_an_interval(
    model: CalibratedModel,
) -> None:
    [answer] = model.predict([configuration(2, 64, 0.02)])
    assert 0.01 < width(answer) < 0.2


def test_what_was_never_varied_is_as_doubtful_as_it_is_far() -> None:
    observations = measure(grid(batches=(64,)))
    model = fit_step_time_model(observations, predictor=Lawful())
    near, far = model.predict([configuration(2, 128), configuration(2, 6400)])
    assert far.basis is Basis.EXTRAPOLATED
    assert width(far) > width(near) + math.log(10)


@pytest.mark.parametrize(
    "requested",
    [
        [configuration(3, 256, delay_s) for delay_s in (0.08, 0.16, 1.0, 10.0)],
        [configuration(3, batch) for batch in (2048, 8192, 65536)],
        [configuration(world_size, 256) for world_size in (6, 24, 96)],
    ],
)
def test_the_further_beyond_what_was_measured_the_wider_is_an_interval(
    model: CalibratedModel, requested: list[Configuration]
) -> None:
    widths = [width(answer) for answer in model.predict(requested)]
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[0]


def test_an_interval_of_a_suspicious_measurement_reaches_what_the_others_say() -> None:
    odd = configuration(2, 256, 0.02)
    observations = measure(grid(), time_s=lambda c: law(c) * (10 if c == odd else 1))
    model = fit_step_time_model(observations, predictor=Lawful())
    [answer] = model.predict([odd])
    assert answer.step_time_s == pytest.approx(10 * law(odd), rel=0.1)
    assert answer.low_s is not None
    assert answer.low_s < law(odd)


@pytest.mark.parametrize("factors", [(1.0, 0.5), (0.6, 1.2), (1.0, 4.0)])
def test_of_two_runs_that_contradict_each_other_neither_is_left_out(
    factors: tuple[float, float],
) -> None:
    """Nor what the others say, though only one of the two is suspicious."""
    odd = configuration(2, 256, 0.02)
    quiet = measure([c for c in grid() if c != odd], repetitions=3, log_noise=lambda c: 0.005)
    own_s = [law(odd) * factor for factor in factors]
    observations = [
        *quiet,
        *(
            Observation(measurement_id=10_000 + i, configuration=odd, step_time_s=time_s)
            for i, time_s in enumerate(own_s)
        ),
    ]
    model = fit_step_time_model(observations, predictor=Lawful())
    assert any(suspicion.measurement_id >= 10_000 for suspicion in model.suspicions)
    [answer] = model.predict([odd])
    assert answer.step_time_s == pytest.approx(sum(own_s) / 2)
    for low_s, high_s in ((answer.low_s, answer.high_s), (answer.low80_s, answer.high80_s)):
        assert low_s is not None
        assert high_s is not None
        assert low_s <= min(*own_s, law(odd))
        assert high_s >= max(*own_s, law(odd))
    assert answer.high_s is not None
    assert answer.high_s < 10 * law(odd)


def test_nothing_at_all_is_measured() -> None:
    [answer] = fit_step_time_model([]).predict([configuration(2, 64)])
    assert answer.basis is Basis.UNKNOWN


def test_two_measurements_are_answered_with_wide_intervals() -> None:
    observations = measure([configuration(1, 64), configuration(2, 64)])
    [answer] = fit_step_time_model(observations, predictor=Lawful()).predict([configuration(4, 64)])
    assert answer.basis is Basis.EXTRAPOLATED
    assert width(answer) > 1


@pytest.mark.parametrize(
    "differing",
    [
        {"setup": (Setup.read("spread"), Setup.read("packed"))},
        {"strategy": ("mwms_ring", "ps_sync")},
        {"network": ("ethernet", "infiniband")},
        {"framework": ("tensorflow", "torch")},
        {"instance_type": ("large", "small")},
    ],
)
def test_what_others_were_measured_on_makes_no_curve_surer_beyond_its_own(
    differing: dict[str, tuple[object, object]],
) -> None:
    """One goes on to 64 machines, the other was measured on 2 and 4, and its link fills up."""
    [(field, (going_on, ended))] = differing.items()
    long: dict[str, Any] = {field: going_on}
    short: dict[str, Any] = {field: ended}
    observations = measure(
        [
            *grid(world_sizes=(2, 4, 8, 16, 32, 64), delays_s=(0.0,), **long),
            *grid(world_sizes=(2, 4), delays_s=(0.0,), **short),
        ],
        time_s=lambda c: law(c) + (0.02 * c.world_size if getattr(c, field) == ended else 0.0),
    )
    model = fit_step_time_model(observations)
    requested = [configuration(n, 128, **short) for n in (4, 8, 16, 32, 64)]
    answers = model.predict(requested)
    widths = [width(answer) for answer in answers]
    assert widths == sorted(widths)
    assert widths[-1] > math.log(4)
    assert all(answer.speculative_because for answer in answers[1:])
    # The other one was measured there.
    [measured] = model.predict([configuration(64, 128, **long)])
    assert measured.speculative_because is None
    assert width(measured) < 0.5
