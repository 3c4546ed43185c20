"""What lacks several values at once: held out together, or else added up and called a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.recommend.calibrated.held_out import Combination, combined_folds
from farm.recommend.calibrated.novelty import GapAxis, Space
from farm.recommend.calibrated.step_time_model import CalibratedModel, fit_step_time_model
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Prediction
from farm.recommend.predictors.contracts import PointEstimate
from tests.truths.synthetic_steps import Lawful, configuration, grid, law, measure

DELAY = GapAxis.of("one_way_delay_s")


def half_width(prediction: Prediction) -> float:
    assert prediction.low_s is not None
    assert prediction.high_s is not None
    return math.log(prediction.high_s / prediction.low_s) / 2


class WrongTogether:
    """Knows the law, but is off by `factor` where neither batch nor delay was measured."""

    name = "wrong together"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def fit(self, observations: Sequence[Observation]) -> _FittedWrong:
        return _FittedWrong(self.factor, [o.configuration for o in observations])


class _FittedWrong:
    def __init__(self, factor: float, known: Sequence[Configuration]) -> None:
        self._factor = factor
        self._batches = {c.global_batch_size for c in known}
        self._delays_s = {c.one_way_delay_s for c in known if not c.is_one_machine}

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return [PointEstimate(step_time_s=law(c) * self._off(c)) for c in configurations]

    def _off(self, c: Configuration) -> float:
        is_new = c.global_batch_size not in self._batches
        return self._factor if is_new and c.one_way_delay_s not in self._delays_s else 1.0


NEW_BATCH, NEW_DELAY = configuration(3, 96, 0.02), configuration(3, 64, 0.03)
NEW_BOTH = configuration(3, 96, 0.03)
BEYOND_BOTH = configuration(3, 2048, 0.12)


@pytest.mark.parametrize("both", [NEW_BOTH, BEYOND_BOTH])
@pytest.mark.parametrize("factor", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("is_told_what_is_asked", [True, False])
def test_several_gaps_are_as_doubtful_as_they_were_together(
    both: Configuration, factor: float, is_told_what_is_asked: bool
) -> None:
    """What each alone was off by tells nothing of it."""
    requested = [NEW_BATCH, NEW_DELAY, both]
    model = fit_step_time_model(
        measure(grid()),
        predictor=WrongTogether(factor),
        requested=requested if is_told_what_is_asked else None,
    )
    *alone, together = model.predict(requested)
    assert max(map(half_width, alone)) < 0.2
    assert half_width(together) > 0.9 * abs(math.log(factor))
    assert together.low_s is not None
    assert together.high_s is not None
    assert together.low_s * 0.95 <= law(both) <= together.high_s * 1.05


@pytest.fixture(scope="module")
def star() -> CalibratedModel:
    """All world sizes at one batch size, and all batch sizes on two machines."""
    configurations = dict.fromkeys(
        [
            *grid(world_sizes=(2, 4, 8, 16), batches=(64,), delays_s=(0.0,)),
            *grid(world_sizes=(2,), batches=(64, 128, 256, 512, 1024), delays_s=(0.0,)),
        ]
    )
    return fit_step_time_model(measure(list(configurations)), predictor=Lawful())


def test_what_was_never_missing_together_is_a_guess(star: CalibratedModel) -> None:
    batch, size, both = star.predict(
        [configuration(2, 192), configuration(6, 64), configuration(6, 192)]
    )
    assert (batch.speculative_because, size.speculative_because) == (None, None)
    assert both.speculative_because == (
        "no measurement could be held out to check a new batch size and a new world size at once"
    )
    # They depend on the place a little.
    assert half_width(both) > 0.8 * (half_width(batch) + half_width(size))


def test_what_was_missing_together_in_training_is_no_guess() -> None:
    [both] = fit_step_time_model(measure(grid()), predictor=Lawful()).predict([NEW_BOTH])
    assert both.speculative_because is None


@settings(max_examples=25)
@given(
    world_size=st.sampled_from((2, 3, 4)),
    batch=st.integers(64, 2048),
    delay_ms=st.integers(0, 120),
)
def test_what_lacks_more_is_no_surer(world_size: int, batch: int, delay_ms: int) -> None:
    calibration = _full().calibration
    requested = configuration(world_size, batch, delay_ms / 1000)
    gaps = calibration.space.gaps(requested)
    places = calibration.neighbourhood.locate([requested])
    whole = calibration.half_widths(gaps, [requested], [1.0], places=places)[0]
    for gap in gaps:
        part = calibration.half_widths(frozenset({gap}), [requested], [1.0], places=places)[0]
        assert (whole >= part - 1e-9).all()


_FULL: list[CalibratedModel] = []


def _full() -> CalibratedModel:
    if not _FULL:
        _FULL.append(fit_step_time_model(measure(grid()), predictor=Lawful()))
    return _FULL[0]


@settings(max_examples=25)
@given(
    sizes=st.sets(st.integers(2, 20), min_size=2, max_size=4),
    delays_ms=st.sets(st.integers(0, 60), min_size=2, max_size=4),
    requested=st.tuples(st.integers(1, 25), st.integers(0, 80)),
)
def test_folds_test_what_lacks_all_and_train_with_none_of_it(
    sizes: set[int], delays_ms: set[int], requested: tuple[int, int]
) -> None:
    configurations = grid(
        world_sizes=sorted(sizes),
        batches=(64, 128),
        delays_s=[ms / 1000 for ms in sorted(delays_ms)],
    )
    size, delay_ms = requested
    gaps = Space.of(configurations).gaps(configuration(size + 1, 64, delay_ms / 1000))
    if len(gaps) < 2:
        return
    for fold in combined_folds(configurations, Combination(gaps)):
        space = Space.of(configurations[i] for i in fold.training)
        for i in fold.tested:
            lacking = {gap.axis for gap in space.gaps(configurations[i])}
            assert lacking == {GapAxis.WORLD_SIZE, DELAY} == {gap.axis for gap in gaps}
