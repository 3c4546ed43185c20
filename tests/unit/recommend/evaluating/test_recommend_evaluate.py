"""What is held out stays out, and what follows from it for choices."""

from __future__ import annotations

import dataclasses

import pytest

from farm.recommend.calibrated.splits import Fold, Split, all_splits
from farm.recommend.configuration import Observation
from farm.recommend.contracts import Basis, Prediction
from farm.recommend.evaluating.evaluate import (
    POOLED,
    FoldTrial,
    Tried,
    run_trial,
    summarise,
    trials,
)
from farm.recommend.evaluating.scores import HeldOutAnswer
from farm.recommend.predictors import DEFAULT_PREDICTOR
from tests.truths.synthetic_steps import configuration, grid, measure

OBSERVATIONS = measure(grid(world_sizes=(1, 2, 4), batches=(64, 256, 1024), delays_s=(0.0, 0.02)))


@pytest.mark.parametrize("predictor", ["physical", DEFAULT_PREDICTOR])
def test_times_that_are_held_out_change_nothing_of_what_is_said_of_them(predictor: str) -> None:
    """Not the value, not the interval: no weight, parameter or calibration knows them."""
    fold = next(s.folds[-1] for s in all_splits(OBSERVATIONS) if s.name == "batch")
    trial = FoldTrial(predictor_name=predictor, fold=fold)
    changed = [
        dataclasses.replace(o, step_time_s=o.step_time_s * 7) if i in fold.tested else o
        for i, o in enumerate(OBSERVATIONS)
    ]
    outputs = [
        [outcome.prediction for outcome in run_trial(observations, trial).outcomes]
        for observations in (OBSERVATIONS, changed)
    ]
    assert outputs[0] == outputs[1]


def test_a_fold_of_two_splits_is_tried_once_and_scored_in_both() -> None:
    folds = next(s.folds for s in all_splits(OBSERVATIONS) if s.name == "batch")
    splits = [
        Split("each", folds, is_leave_one_out=True),
        Split("some", folds[:-1]),
        Split("again", folds[:1], is_leave_one_out=True),
    ]
    tried = [run_trial(OBSERVATIONS, trial) for trial in trials(["physical"], splits)]
    assert len(tried) == len(folds)
    scores = {s.split: s for s in summarise(OBSERVATIONS, splits, tried, machine_price=0.0)}
    assert {name: s.fold_count for name, s in scores.items()} == {
        "each": len(folds),
        "some": len(folds) - 1,
        "again": 1,
        POOLED: len(folds) + 1,
    }
    assert scores["each"].errors.answered_count == len(OBSERVATIONS)


def test_a_choice_knows_what_was_measured_and_an_unseen_one_does_not() -> None:
    """One machine is predicted far too fast, so it is chosen wherever it was held out."""
    measured_s = {1: 3.0, 2: 2.0, 4: 1.0}
    predicted_s = {1: 0.5, 2: 2.0, 4: 1.0}
    observations = [
        Observation(measurement_id=n, configuration=configuration(n, 64), step_time_s=time_s)
        for n, time_s in measured_s.items()
    ]
    folds = [Fold(tuple({0, 1, 2} - {i}), (i,)) for i in range(3)]
    tried = [
        Tried(
            trial=FoldTrial(predictor_name="some", fold=fold),
            outcomes=(_outcome(o, predicted_s[o.measurement_id]),),
            constant=(),
        )
        for fold, o in zip(folds, observations, strict=True)
    ]
    [score] = summarise(observations, [Split("random", tuple(folds))], tried, machine_price=0.0)
    assert score.choices.choice_count == 3
    assert score.choices.max_ratio == pytest.approx(2.0)
    assert score.choices.mean_ratio == pytest.approx(2 / 3)
    assert score.unseen_choices.choice_count == 1
    assert score.unseen_choices.mean_ratio == pytest.approx(2.0)


def _outcome(observation: Observation, time_s: float) -> HeldOutAnswer:
    prediction = Prediction(
        step_time_s=time_s,
        low_s=time_s,
        high_s=time_s,
        low80_s=time_s,
        high80_s=time_s,
        basis=Basis.INTERPOLATED,
    )
    return HeldOutAnswer(observation=observation, prediction=prediction)
