"""The results of an evaluation. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from farm.recommend.calibrated.suspicious import Suspicion
from farm.recommend.evaluating.evaluate import FewShotScore, SplitScore
from farm.recommend.evaluating.scores import HeldOutAnswer


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
