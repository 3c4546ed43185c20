"""Time to a target accuracy."""

from __future__ import annotations

from farm.measuring.learning_curves import LearningCurve, mean_curve, time_to_accuracy

QUICK = LearningCurve(train_s=(1.0, 1.0, 1.0), accuracy_ratios=(0.5, 0.9, 0.95))
SLOW = LearningCurve(train_s=(2.0, 2.0, 2.0), accuracy_ratios=(0.4, 0.6, 0.9))


def test_it_is_the_training_up_to_the_first_evaluation_at_or_above_the_target() -> None:
    reached = time_to_accuracy([QUICK, SLOW], 0.9)
    assert (reached.time_s, reached.epoch_count) == (4.0, 2.5)
    assert (reached.repetition_count, reached.reached_count) == (2, 2)


def test_only_trainings_that_reached_it_have_a_time() -> None:
    reached = time_to_accuracy([QUICK, SLOW], 0.95)
    assert (reached.repetition_count, reached.reached_count, reached.time_s) == (2, 1, 3.0)
    assert time_to_accuracy([SLOW], 0.99).time_s is None
    assert time_to_accuracy([], 0.5).repetition_count == 0


def test_a_mean_curve_goes_as_far_as_all_of_them() -> None:
    short = LearningCurve(train_s=(1.0,), accuracy_ratios=(0.7,))
    assert mean_curve([QUICK, short]) == (0.6,)
    assert mean_curve([]) == ()
