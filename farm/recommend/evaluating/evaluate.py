"""Evaluates predictors on held-out measurements.

A trial is one fit and its answers. Trials are independent and may run in several processes at once.
Intervals are calibrated on the training part alone, never on the test part.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.splits import Fold, Split
from farm.recommend.calibrated.step_time_model import fit_step_time_model
from farm.recommend.calibrated.suspicious import Suspicion
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import AIMS, Prediction
from farm.recommend.evaluating.few_shot import FewShotScore, GroundTruth
from farm.recommend.evaluating.questions import factor, questions
from farm.recommend.evaluating.scores import (
    ErrorScore,
    HeldOutAnswer,
    IntervalScore,
    RegretScore,
    error_score,
    interval_score,
    regret_ratio,
    regret_score,
)
from farm.recommend.features import canonical
from farm.recommend.predictors import PREDICTORS

POOLED = "all that leave one out"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTrial:
    """One predictor and one fold, tried once even if several splits share the fold."""

    predictor_name: str
    fold: Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a trial found; `constant`: the same with intervals of constant width."""

    trial: FoldTrial
    outcomes: tuple[HeldOutAnswer, ...]
    constant: tuple[HeldOutAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalComparison:
    """Local intervals and, calibrated on the same errors, those of constant width in ln(time)."""

    local: IntervalScore
    constant: IntervalScore


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScore:
    """How one predictor did under one split; `intervals`: of 80 % and of 90 %.

    `choices`: as an answer would make them, with the measured times of what was in the training,
    each fold by itself. `unseen_choices`: with every option predicted by the fold that held it
    out, so that none of them is known.
    """

    predictor: str
    split: str
    fold_count: int
    errors: ErrorScore
    choices: RegretScore
    unseen_choices: RegretScore
    intervals: tuple[IntervalComparison, ...]


def trials(predictor_names: Iterable[str], splits: Sequence[Split]) -> list[FoldTrial]:
    """Return one trial for each predictor and fold."""
    folds = dict.fromkeys(fold for split in splits for fold in split.folds)
    return [FoldTrial(predictor_name=name, fold=fold) for name in predictor_names for fold in folds]


def run_trial(observations: Sequence[Observation], trial: FoldTrial) -> Tried:
    """Fit to the training of the trial's fold and predict what it tests."""
    training = [observations[i] for i in trial.fold.training]
    tested = [observations[i] for i in trial.fold.tested]
    requested = [o.configuration for o in tested]
    model = fit_step_time_model(
        training, predictor=PREDICTORS[trial.predictor_name], requested=requested
    )
    return Tried(
        trial=trial,
        outcomes=_outcomes(tested, model.predict(requested)),
        constant=_outcomes(tested, model.predict(requested, is_constant=True)),
    )


def _outcomes(
    observations: Sequence[Observation], predictions: Sequence[Prediction]
) -> tuple[HeldOutAnswer, ...]:
    return tuple(
        HeldOutAnswer(observation=o, prediction=p)
        for o, p in zip(observations, predictions, strict=True)
    )


def summarise(
    observations: Sequence[Observation],
    splits: Sequence[Split],
    tried: Sequence[Tried],
    *,
    machine_price: float,
) -> list[SplitScore]:
    """Score each predictor under each split, and over all that leave one value out together."""
    regrets_of = _Regrets(observations, machine_price=machine_price)
    found = []
    leaving_one_out = [split for split in splits if split.is_leave_one_out]
    for name in dict.fromkeys(t.trial.predictor_name for t in tried):
        of_fold = {t.trial.fold: t for t in tried if t.trial.predictor_name == name}
        for split in splits:
            own = [of_fold[fold] for fold in split.folds]
            regrets = [ratio for t in own for ratio in regrets_of([t])]
            found.append(_score(name, split.name, own, regrets, regrets_of(own)))
        if len(leaving_one_out) > 1:
            pooled = [of_fold[fold] for split in leaving_one_out for fold in split.folds]
            found.append(_score(name, POOLED, pooled, [], []))
    return found


def _score(
    predictor: str,
    split: str,
    tried: Sequence[Tried],
    regrets: Sequence[float],
    unseen_regrets: Sequence[float],
) -> SplitScore:
    outcomes = [outcome for t in tried for outcome in t.outcomes]
    constant = [outcome for t in tried for outcome in t.constant]
    return SplitScore(
        predictor=predictor,
        split=split,
        fold_count=len(tried),
        errors=error_score(outcomes),
        choices=regret_score(regrets),
        unseen_choices=regret_score(unseen_regrets),
        intervals=tuple(
            IntervalComparison(
                local=interval_score(outcomes, aim_ratio=aim),
                constant=interval_score(constant, aim_ratio=aim),
            )
            for aim in AIMS
        ),
    )


class _Regrets:
    """The questions that the measurements can answer, and the truth of each."""

    def __init__(self, observations: Sequence[Observation], *, machine_price: float) -> None:
        truth = GroundTruth.of(observations)
        self._objective = factor(truth.configurations, machine_price=machine_price)
        self._true = {c: truth.step_time_s(c) * self._objective(c) for c in truth.repetitions}
        self._questions = questions(truth.configurations)

    def __call__(self, tried: Iterable[Tried]) -> list[float]:
        """Return the regret of every choice in which an option was held out.

        What was held out has its prediction, what was not its measured time. A choice of which
        nothing that was held out is known is none.
        """
        held_out: dict[Configuration, list[float]] = {}
        for t in tried:
            for outcome in t.outcomes:
                times_s = held_out.setdefault(canonical(outcome.observation.configuration), [])
                if outcome.prediction.step_time_s is not None:
                    times_s.append(outcome.prediction.step_time_s)
        found = []
        for options in self._questions:
            if not any(held_out.get(c) for c in options):
                continue
            predicted = {
                c: statistics.median(held_out[c]) * self._objective(c)
                if c in held_out
                else self._true[c]
                for c in options
                if held_out.get(c) != []
            }
            found.append(regret_ratio({c: self._true[c] for c in options}, predicted))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtInWords:
    """A suspicious measurement, in words."""

    configuration: str
    step_time_s: float
    suspicion: Suspicion


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorEvaluation:
    """Of one workload and kind of hardware.

    `machine_price`: what is minimised by a choice is time x (1 + machines x it). `outcomes`: of
    the first split, as the first predictor answered it; left out of JSON, being long.
    """

    origin: str
    model: str | None
    dataset: str | None
    fingerprint: str | None
    observation_count: int
    failure_count: int
    machine_price: float
    is_weak: bool
    seed: int
    predictors: tuple[str, ...]
    splits: tuple[SplitScore, ...]
    few_shots: tuple[FewShotScore, ...]
    suspicious: tuple[DoubtInWords, ...]
    outcomes: tuple[HeldOutAnswer, ...]
