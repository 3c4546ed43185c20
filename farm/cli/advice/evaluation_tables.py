"""The tables of an evaluation: on a terminal, and in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farm.text import display
from farm.text.columns import Column

if TYPE_CHECKING:
    from farm.recommend.evaluating.evaluate import DoubtInWords, FewShotScore, SplitScore
    from farm.recommend.evaluating.scores import RegretScore

CHOICE_COLUMNS = (
    Column("predictor"),
    Column("held out"),
    Column("fits", is_right=True),
    Column("unknown", is_right=True),
    Column("error: median", is_right=True),
    Column("mean", is_right=True),
    Column("right choices", is_right=True),
    Column("regret: mean", is_right=True),
    Column("p95", is_right=True),
    Column("max", is_right=True),
    Column("unseen: mean", is_right=True),
    Column("unseen: max", is_right=True),
)
INTERVAL_COLUMNS = (
    Column("predictor"),
    Column("held out"),
    Column("intervals", is_right=True),
    Column("in 80 %", is_right=True),
    Column("in 90 %", is_right=True),
    Column("width 80 %", is_right=True),
    Column("width 90 %", is_right=True),
    Column("score 80 %", is_right=True),
    Column("constant", is_right=True),
    Column("score 90 %", is_right=True),
    Column("constant", is_right=True),
)
FEW_SHOT_COLUMNS = (
    Column("predictor"),
    Column("measurements", is_right=True),
    Column("chosen"),
    Column("seeds", is_right=True),
    Column("right choices", is_right=True),
    Column("regret: mean", is_right=True),
    Column("p95", is_right=True),
    Column("max", is_right=True),
)
DOUBT_COLUMNS = (
    Column("measurement", is_right=True),
    Column("configuration"),
    Column("step time", is_right=True),
    Column("counts", is_right=True),
    Column("because"),
)


def choice_cells(score: SplitScore) -> list[str]:
    """Write one row of `CHOICE_COLUMNS`."""
    return [
        score.predictor,
        score.split,
        str(score.fold_count),
        str(score.errors.unknown_count),
        display.percent(score.errors.median_ratio, digits=2),
        display.percent(score.errors.mean_ratio, digits=1),
        *regret_cells(score.choices),
        display.percent(score.unseen_choices.mean_ratio, digits=2),
        display.percent(score.unseen_choices.max_ratio, digits=1),
    ]


def interval_cells(score: SplitScore) -> list[str]:
    """Write one row of `INTERVAL_COLUMNS`."""
    of80, of90 = score.intervals
    return [
        score.predictor,
        score.split,
        str(of80.local.interval_count),
        display.percent(of80.local.coverage_ratio, digits=1),
        display.percent(of90.local.coverage_ratio, digits=1),
        display.percent(of80.local.width_ratio),
        display.percent(of90.local.width_ratio),
        _score(of80.local.log_score),
        _score(of80.constant.log_score),
        _score(of90.local.log_score),
        _score(of90.constant.log_score),
    ]


def few_shot_cells(score: FewShotScore) -> list[str]:
    """Write one row of `FEW_SHOT_COLUMNS`."""
    return [
        score.predictor,
        str(score.measurement_count),
        "planned" if score.is_planned else "at random",
        str(score.seed_count),
        *regret_cells(score.choices),
    ]


def doubt_cells(doubt: DoubtInWords) -> list[str]:
    """Write one row of `DOUBT_COLUMNS`."""
    suspicion = doubt.suspicion
    return [
        str(suspicion.measurement_id),
        doubt.configuration,
        display.duration(doubt.step_time_s),
        display.percent(suspicion.weight),
        suspicion.message,
    ]


def regret_cells(score: RegretScore) -> list[str]:
    """Write the share of right choices, and how wrong the others are."""
    right = display.MISSING
    if score.right_ratio is not None:
        right = f"{round(score.right_ratio * score.choice_count)} of {score.choice_count}"
    return [
        right,
        display.percent(score.mean_ratio, digits=2),
        display.percent(score.p95_ratio, digits=1),
        display.percent(score.max_ratio, digits=1),
    ]


def _score(value: float | None) -> str:
    return display.MISSING if value is None else f"{value:.3f}"
