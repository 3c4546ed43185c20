"""What of a question was not measured, and what is held out to be as hard as it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farm.recommend.calibrated.held_out import folds, hold_out
from farm.recommend.calibrated.novelty import Gap, GapAxis, Side, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.contracts import FittedPredictor, PointEstimate
from tests.truths.synthetic_steps import BATCHES, DELAYS_S, Lawful, configuration, grid, measure

SPACE = Space.of(grid())
DELAY = GapAxis.of("one_way_delay_s")


def everywhere(axis: GapAxis, side: Side) -> set[Gap]:
    return {Gap(axis, side, is_everywhere=True)}


def test_a_measured_configuration_lacks_nothing() -> None:
    assert SPACE.gaps(configuration(2, 64, 0.02)) == frozenset()


def test_a_new_combination_of_measured_values_lacks_nothing() -> None:
    some = [c for c in grid() if c != configuration(2, 64, 0.02)]
    assert Space.of(some).gaps(configuration(2, 64, 0.02)) == frozenset()


def test_a_new_value_lies_between_or_beyond_the_measured_ones() -> None:
    assert SPACE.gaps(configuration(2, 96)) == everywhere(GapAxis.BATCH, Side.INSIDE)
    assert SPACE.gaps(configuration(2, 32)) == everywhere(GapAxis.BATCH, Side.BELOW)
    assert SPACE.gaps(configuration(8, 64)) == everywhere(GapAxis.WORLD_SIZE, Side.ABOVE)
    assert SPACE.gaps(configuration(2, 64, 0.1)) == everywhere(DELAY, Side.ABOVE)
    assert len(SPACE.gaps(configuration(8, 96, 0.03))) == 3


def test_the_network_is_no_matter_to_one_machine() -> None:
    assert SPACE.gaps(configuration(1, 64, 0.5, network="none")) == frozenset()


def test_a_value_that_another_strategy_has_lacks_in_this_one_only() -> None:
    space = Space.of([*grid(), *grid(strategy="ps", batches=(64, 1024))])
    assert space.gaps(configuration(2, 256, strategy="ps")) == {
        Gap(GapAxis.BATCH, Side.INSIDE, is_everywhere=False)
    }


def test_an_unknown_strategy_is_compared_with_the_others() -> None:
    assert SPACE.gaps(configuration(2, 64, strategy="ps")) == {
        Gap(GapAxis.NAMES, Side.INSIDE, is_everywhere=False)
    }


def test_one_machine_is_where_the_curve_of_a_gang_begins() -> None:
    alone = configuration(1, 64, strategy="single")
    space = Space.of([alone, *grid(world_sizes=(4, 8))])
    assert space.gaps(configuration(2, 64)) == everywhere(GapAxis.WORLD_SIZE, Side.INSIDE)


def test_no_gang_tells_what_one_machine_takes() -> None:
    gangs = Space.of(grid(world_sizes=(2, 4)))
    assert gangs.gaps(configuration(1, 96)) == everywhere(GapAxis.ALONE, Side.BELOW)


def test_the_batch_that_stays_the_same_is_the_axis() -> None:
    weak = Space.of(configuration(n, 32 * n) for n in (1, 2, 4, 8))
    assert weak.is_weak
    assert not SPACE.is_weak
    assert weak.gaps(configuration(8, 256)) == frozenset()
    assert weak.gaps(configuration(8, 512)) == everywhere(GapAxis.BATCH, Side.ABOVE)


def test_a_fold_trains_with_nothing_of_the_value_it_tests() -> None:
    observations = measure(grid(), repetitions=2)
    found = folds([o.configuration for o in observations], GapAxis.BATCH)
    assert len(found) >= len(BATCHES)
    for fold in found:
        trained = {observations[i].configuration.global_batch_size for i in fold.training}
        tested = {observations[i].configuration.global_batch_size for i in fold.tested}
        assert tested
        assert not trained & tested


def test_beyond_the_largest_value_several_are_held_out_together() -> None:
    observations = measure(grid())
    tested = [
        {observations[i].configuration.one_way_delay_s for i in fold.tested}
        for fold in folds([o.configuration for o in observations], DELAY)
    ]
    assert set(DELAYS_S[-2:]) in tested
    # One machine has no delay, and teaches in every fold.
    assert all(
        {o.measurement_id - 1 for o in observations if o.configuration.is_one_machine}
        <= set(fold.training)
        for fold in folds([o.configuration for o in observations], DELAY)
    )


def test_repetitions_are_held_out_together() -> None:
    observations = measure(grid(), repetitions=3)
    for fold in folds([o.configuration for o in observations], None):
        trained = {observations[i].configuration for i in fold.training}
        assert not trained & {observations[i].configuration for i in fold.tested}


def test_every_configuration_is_held_out_once() -> None:
    observations = measure(grid())
    tested = [
        i for fold in folds([o.configuration for o in observations], None) for i in fold.tested
    ]
    assert sorted(tested) == list(range(len(observations)))


class _Refitting(Lawful):
    """Counts how often it is fitted from nothing; a fit knows the observations it has."""

    def __init__(self) -> None:
        self.fit_count = 0

    def fit(self, observations: Sequence[Observation]) -> FittedPredictor:
        self.fit_count += 1
        return _Fitted(super().fit(observations), super().fit)


class _Fitted:
    def __init__(
        self,
        fitted: FittedPredictor,
        fit: Callable[[Sequence[Observation]], FittedPredictor],
    ) -> None:
        self._fitted, self._fit = fitted, fit

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return self._fitted.predict(configurations)

    def refit(self, observations: Sequence[Observation]) -> FittedPredictor:
        return self._fit(observations)


def test_what_can_be_refitted_is_fitted_once() -> None:
    predictor, observations = _Refitting(), measure(grid())
    fitted = predictor.fit(observations)
    refitted = hold_out(observations, predictor, [None], fitted=fitted)
    assert predictor.fit_count == 1
    anew = hold_out(observations, predictor, [None])
    assert predictor.fit_count > 2
    assert refitted.log_errors.tolist() == anew.log_errors.tolist()
