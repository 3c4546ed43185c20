"""The pictures of an evaluation: every split and predictor is named, whatever could be scored."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("matplotlib")

from farm.cli.advice.evaluation_report import pictures_of
from farm.recommend.evaluating.evaluate import IntervalComparison, PredictorEvaluation, SplitScore
from farm.recommend.evaluating.few_shot import FewShotScore
from farm.recommend.evaluating.scores import ErrorScore, IntervalScore, RegretScore

SPLITS = tuple(f"held out {number}" for number in range(11))
PREDICTORS = ("ensemble", "neighbours", "random_forest")


def regret(mean_ratio: float | None) -> RegretScore:
    return RegretScore(
        choice_count=4, right_ratio=0.5, mean_ratio=mean_ratio, p95_ratio=0.2, max_ratio=0.3
    )


def intervals(aim: float, coverage: float | None) -> IntervalComparison:
    score = IntervalScore(
        aim_ratio=aim, interval_count=9, coverage_ratio=coverage, width_ratio=0.2, log_score=0.5
    )
    return IntervalComparison(local=score, constant=score)


def evaluation(*, has_answers: bool) -> PredictorEvaluation:
    splits = tuple(
        SplitScore(
            predictor=predictor,
            split=split,
            fold_count=3,
            errors=ErrorScore(
                answered_count=9,
                unknown_count=0,
                median_ratio=0.02 * (1 + place) if has_answers else None,
                mean_ratio=None,
            ),
            choices=regret(0.1),
            unseen_choices=regret(0.1),
            intervals=tuple(intervals(aim, aim if has_answers else None) for aim in (0.8, 0.9)),
        )
        for predictor in PREDICTORS
        for place, split in enumerate(SPLITS)
    )
    few_shots = tuple(
        FewShotScore(
            predictor="ensemble",
            measurement_count=measured,
            is_planned=is_planned,
            seed_count=5,
            choices=regret(1 / measured if has_answers else None),
        )
        for is_planned in (True, False)
        for measured in (6, 10, 20)
    )
    return PredictorEvaluation(
        origin="mine",
        model="small_cnn",
        dataset="digits",
        fingerprint=None,
        observation_count=9,
        failure_count=0,
        machine_price=0.0,
        is_weak=False,
        seed=0,
        predictors=PREDICTORS,
        splits=splits,
        few_shots=few_shots,
        suspicious=(),
        outcomes=(),
    )


def texts(picture: bytes) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", picture.decode())


@pytest.mark.parametrize("name", ["errors", "coverage"])
def test_every_split_is_named_the_first_at_the_top(name: str) -> None:
    picture, _ = pictures_of(evaluation(has_answers=True))[name]
    assert [text for text in reversed(texts(picture)) if text in SPLITS] == list(SPLITS)


def test_keys_name_predictors_intervals_and_how_measurements_were_chosen() -> None:
    drawn = {
        name: texts(picture)
        for name, (picture, _) in pictures_of(evaluation(has_answers=True)).items()
    }
    assert [text for text in drawn["errors"] if text in PREDICTORS] == list(PREDICTORS)
    assert drawn["coverage"].count("80 % interval") == 1
    assert drawn["coverage"].count("90 % interval") == 1
    assert {"planned", "at random"} <= set(drawn["few-shot"])


def test_what_could_not_be_scored_leaves_pictures_without_marks() -> None:
    drawn = pictures_of(evaluation(has_answers=False))
    assert set(drawn) == {"errors", "predicted", "coverage", "few-shot"}
    assert all(picture.startswith(b"<?xml") for picture, _ in drawn.values())
