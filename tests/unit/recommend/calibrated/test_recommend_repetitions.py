"""What repetitions say of how much measurements vary, and what copies of a value do not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.recommend.calibrated.held_out import hold_out
from farm.recommend.calibrated.intervals import distinct, prediction_interval
from farm.recommend.calibrated.repetitions import Repetitions, experiment_weights
from farm.recommend.calibrated.step_time_model import fit_step_time_model
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Prediction
from farm.recommend.predictors import PREDICTORS
from farm.recommend.predictors.contracts import PointEstimate
from tests.truths.synthetic_steps import configuration

_ASKED = configuration(4, 64)


def observed(times_s: dict[Configuration, list[float]]) -> list[Observation]:
    return [
        Observation(measurement_id=i, configuration=c, step_time_s=time_s)
        for i, (c, time_s) in enumerate((c, t) for c, times in times_s.items() for t in times)
    ]


def log_width(repetitions: Repetitions, requested: Configuration) -> float | None:
    found = repetitions.interval(requested, aim_ratio=0.9)
    return None if found is None else math.log(found.high_s / found.low_s)


def test_values_that_repeat_another_are_one_repetition() -> None:
    assert distinct([0.4, 0.41, 0.4, 0.400001]) == [0.4, 0.41]
    assert prediction_interval([0.4] * 9, coverage_ratio=0.9) is None


@pytest.mark.parametrize(
    ("printed", "distinct_count"),
    [
        ([0.2468, 0.247], 1),
        ([0.247, 0.24681, 0.2468], 1),
        ([1.235, 1.23456], 1),
        ([247.0, 246.8], 1),
        ([0.2468, 0.246], 2),
        ([0.247, 0.2476], 2),
        ([0.4, 0.401, 0.402], 3),
    ],
)
def test_a_value_with_other_digits_is_no_repetition(
    printed: list[float], distinct_count: int
) -> None:
    assert len(distinct(printed)) == distinct_count
    assert len(distinct([value * 1e-3 for value in printed])) == distinct_count


def test_nothing_is_known_better_than_repetitions_ever_agree() -> None:
    """As of a computed table, which is predicted without an error; nor what lies in between."""
    computed = {
        configuration(size, batch): [0.01 + 1e-3 * batch / size + 0.04 * (size - 1) / size]
        for size in (1, 2, 4, 8)
        for batch in (64, 128, 256, 512)
    }
    model = fit_step_time_model(observed(computed), predictor=_Computed())
    between = [configuration(size, batch) for size in (2, 3, 6, 8) for batch in (64, 96, 512)]
    for prediction in model.predict([*computed, *between]):
        assert prediction.low80_s is not None
        assert prediction.high80_s is not None
        assert prediction.high80_s / prediction.low80_s > 1.015
        assert ratio(prediction) > 1.02


def test_a_prediction_is_not_known_better_than_noisy_repetitions_agree() -> None:
    """Though they happen to have the median that is predicted."""
    noisy = {
        configuration(size, batch): [time_s, time_s * 1.5, time_s / 1.5]
        for size in (1, 2, 4, 8)
        for batch in (64, 128, 256)
        for time_s in [0.01 + 1e-3 * batch / size + 0.04 * (size - 1) / size]
    }
    model = fit_step_time_model(
        [o for o in observed(noisy) if o.measurement_id % 3 == 0], predictor=_Computed()
    )
    bare = dataclasses.replace(model, repetitions=Repetitions.of(observed(noisy)))
    [prediction] = bare.predict([configuration(4, 96)])
    assert ratio(prediction) > 1.2


@pytest.mark.parametrize("spread", [0.0, 1e-6, 5e-5])
def test_a_spread_of_nothing_is_no_noise_to_be_borrowed(spread: float) -> None:
    copies = {configuration(1, batch): [0.4, 0.4, 0.4 * (1 + spread)] for batch in (64, 128, 256)}
    repetitions = Repetitions.of(
        observed({**copies, _ASKED: [0.2], configuration(4, 8): [0.1] * 3})
    )
    assert log_width(repetitions, _ASKED) is None
    assert log_width(repetitions, configuration(1, 64)) is None
    assert log_width(repetitions, configuration(4, 8)) is None


def test_gangs_do_not_borrow_from_machines_without_a_network() -> None:
    alone = {configuration(1, batch): [0.4, 0.401, 0.402] for batch in (64, 128, 256)}
    assert log_width(Repetitions.of(observed({**alone, _ASKED: [0.2]})), _ASKED) is None
    gangs = {configuration(2, batch): [0.4, 0.44, 0.36] for batch in (64, 128, 256)}
    known = Repetitions.of(observed({**alone, **gangs, _ASKED: [0.2]}))
    width = log_width(known, _ASKED)
    assert width is not None
    assert width > 0.2


@pytest.mark.parametrize(
    ("requested", "is_told"),
    [
        (configuration(4, 96, 0.02, jitter_s=0.01), True),
        (configuration(2, 96, 0.02), True),  # by more machines and jitter
        (configuration(8, 96, 0.02, jitter_s=0.01), False),
        (configuration(4, 96, 0.03, jitter_s=0.01), False),
        (configuration(4, 96, 0.02, jitter_s=0.01, packet_loss_ratio=0.01), False),
        (configuration(4, 96, 0.02, jitter_s=0.01, bandwidth_bytes_per_s=1e6), False),
        (configuration(4, 96, 0.02, jitter_s=0.01, strategy="ps"), False),
        (configuration(4, 96, 0.02, jitter_s=0.01, network="other"), False),
        (configuration(1, 96), True),  # by gangs of such machines
        (configuration(1, 96, framework="other"), False),
    ],
)
def test_noise_is_told_by_the_same_names_where_as_much_disturbs_them(
    requested: Configuration, is_told: bool
) -> None:
    repeated = {
        configuration(4, batch, 0.02, jitter_s=0.01): [0.4, 0.41, 0.42] for batch in (64, 128)
    }
    known = Repetitions.of(observed({**repeated, requested: [0.5]}))
    assert known.tells(requested) is is_told


def test_an_unlikely_agreement_is_as_wide_as_the_noise_of_others_makes_it() -> None:
    gangs = {configuration(2, batch): [0.4, 0.44, 0.36] for batch in (64, 128, 256)}
    known = Repetitions.of(observed({**gangs, _ASKED: [0.2, 0.2001, 0.2002]}))
    width = log_width(known, _ASKED)
    assert width is not None
    assert width > 0.1


def test_three_that_nearly_agree_are_no_proof_that_nothing_varies() -> None:
    alone = Repetitions.of(observed({_ASKED: [0.2, 0.20003, 0.20006]}))
    width = log_width(alone, _ASKED)
    assert width is not None
    assert width > 0.01
    bare = prediction_interval([0.2, 0.20003, 0.20006], coverage_ratio=0.9)
    assert bare is not None
    assert math.log(bare.high_s / bare.low_s) > 0.005


def test_repetitions_on_a_quiet_machine_are_believed() -> None:
    quiet = {configuration(2, batch): [0.4, 0.4008, 0.3996] for batch in (64, 128, 256)}
    width = log_width(Repetitions.of(observed(quiet)), configuration(2, 64))
    assert width is not None
    assert 0 < width < 0.05


def table(*, copies: bool) -> list[Observation]:
    """A table that prints the times of one machine once, or once for each of two networks."""
    rows = [
        *((1, batch, None, time_s) for batch, time_s in ((32, 0.40), (64, 0.70), (128, 1.30))),
        *((2, 64, "one", 0.45), (2, 64, "two", 0.52), (4, 128, "one", 0.47), (4, 128, "two", 0.68)),
        *((2, 128, "one", 0.76), (2, 128, "two", 0.84)),
    ]
    return [
        Observation(
            measurement_id=i,
            configuration=configuration(n, batch, strategy="ddp", network=network),
            step_time_s=time_s,
        )
        for i, (n, batch, network, time_s) in enumerate(
            row for row in rows for _ in range(2 if copies and row[0] == 1 else 1)
        )
    ]


def ratios(observations: list[Observation]) -> list[float]:
    model = fit_step_time_model(observations)
    requested = list(dict.fromkeys(o.configuration for o in observations))
    return [ratio(prediction) for prediction in model.predict(requested)]


def ratio(prediction: Prediction) -> float:
    assert prediction.low_s is not None
    assert prediction.high_s is not None
    return prediction.high_s / prediction.low_s


def test_copies_of_a_baseline_make_nothing_surer() -> None:
    once, copied = ratios(table(copies=False)), ratios(table(copies=True))
    assert min(once) > 1.02
    for bare, with_copies in zip(once, copied, strict=True):
        assert with_copies == pytest.approx(bare, rel=0.02)


@settings(max_examples=5)
@given(counts=st.lists(st.integers(1, 5), min_size=9, max_size=9))
def test_copies_of_any_values_make_nothing_surer(counts: list[int]) -> None:
    """Neither of what was measured nor of what is asked beside, between and beyond it."""
    once = table(copies=False)
    copied = [
        Observation(
            measurement_id=10 * i + k, configuration=o.configuration, step_time_s=o.step_time_s
        )
        for i, (o, count) in enumerate(zip(once, counts, strict=True))
        for k in range(count)
    ]
    requested = [
        *(o.configuration for o in once),
        *(
            configuration(n, batch, strategy="ddp", network="one")
            for n, batch in ((4, 64), (2, 96), (8, 128), (3, 256))
        ),
    ]
    bare, with_copies = (
        fit_step_time_model(observations, predictor=PREDICTORS["physical"]).predict(requested)
        for observations in (once, copied)
    )
    assert list(map(ratio, with_copies)) == pytest.approx(list(map(ratio, bare)), rel=1e-6)


def test_a_value_under_several_names_is_one_experiment() -> None:
    found = experiment_weights(
        observed(
            {
                configuration(1, 64): [0.4, 0.4],
                configuration(1, 64, strategy="other"): [0.4],
                configuration(2, 64): [0.3, 0.3, 0.2],
                configuration(2, 64, strategy="other"): [0.25],
            }
        )
    )
    assert found == pytest.approx([0.25, 0.25, 0.5, 0.25, 0.25, 0.5, 1])


class _Computed:
    """Predicts what the table was computed from."""

    name = "computed"

    def fit(self, observations: Sequence[Observation]) -> _Computed:
        return self

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return [
            PointEstimate(
                step_time_s=0.01
                + 1e-3 * c.per_replica_batch_size
                + 0.04 * (c.world_size - 1) / c.world_size
            )
            for c in configurations
        ]


@dataclass(frozen=True)
class _Remembered:
    """Predicts what was measured with the same sizes, whatever the names; else 1 s."""

    name = "remembered"
    known: Sequence[Observation] = ()

    def fit(self, observations: Sequence[Observation]) -> _Remembered:
        return _Remembered(observations)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        times_s = {_sizes(o.configuration): o.step_time_s for o in self.known}
        return [PointEstimate(step_time_s=times_s.get(_sizes(c), 1.0)) for c in configurations]


def _sizes(c: Configuration) -> tuple[int, int]:
    return c.world_size, c.global_batch_size


def test_a_held_out_value_is_not_told_by_its_copies_under_other_names() -> None:
    cells = {
        Configuration(strategy="ring", network=network, world_size=size, global_batch_size=batch): [
            0.004 * batch / size
        ]
        for network in ("a", "b", "c")
        for size in (2, 4, 8)
        for batch in (64, 128, 256)
    }
    found = hold_out(observed(cells), _Remembered(), [None])
    assert len(found.rows) == len(cells)
    errors = [float(error) for error in found.log_errors]
    sizes = [_sizes(c) for c in cells]
    truth = [math.log(0.004 * sizes[i][1] / sizes[i][0]) for i in found.rows]
    assert errors == pytest.approx(truth)
