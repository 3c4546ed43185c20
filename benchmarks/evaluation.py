"""Checks the errors of predictions on two published studies against limits.

What is held to a limit is the default predictor with the weights and intervals that answers have,
on measurements that it has not seen. The baseline of errors and regrets is `physical`, the sum that
the default corrects; of intervals, those of the same width everywhere, calibrated on the same
errors; of planned measurements, as many at random. Random folds are dealt out five times, and the
figure is the mean.

No clock is in it: on a loaded machine it says the same, only later.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import BenchmarkFigure, root, run_benchmark, say
from farm.errors import FarmError
from farm.recommend.evaluating.evaluate import POOLED
from farm.recommend.predictors import DEFAULT_PREDICTOR

BASELINE = "physical"
SEED_COUNT = 5
RANDOM, INNER_DELAYS = "random", "delay, not the first or last"
MEASUREMENT_COUNT, FEW_SHOT_LIMIT_RATIO = 12, 0.05
LEAST_COVERAGE_RATIO, MOST_COVERAGE_RATIO = 0.76, 0.86  # of 80 % intervals

# What `farm evaluate --json` says of an origin, for each seed; the first has all splits.
_Evaluations = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ScoreLimit:
    """`field`: where a split's score has what is limited."""

    origin: str
    split: str
    what: str
    field: tuple[str, str]
    most_ratio: float


_ERROR, _REGRET = ("errors", "median_ratio"), ("choices", "mean_ratio")
SCORE_LIMITS = (
    ScoreLimit("anwar2021", RANDOM, "median error", _ERROR, 0.03),
    ScoreLimit("anwar2021", RANDOM, "mean regret", _REGRET, 0.006),
    ScoreLimit("anwar2021", RANDOM, "largest regret", ("choices", "max_ratio"), 0.25),
    ScoreLimit("anwar2021", "batch", "median error", _ERROR, 0.035),
    ScoreLimit("anwar2021", "batch", "mean regret", _REGRET, 0.02),
    ScoreLimit("anwar2021", INNER_DELAYS, "median error", _ERROR, 0.03),
    ScoreLimit("anwar2021", INNER_DELAYS, "mean regret", _REGRET, 0.025),
    ScoreLimit("graur2019", RANDOM, "median error", _ERROR, 0.035),
    ScoreLimit("graur2019", RANDOM, "mean regret", _REGRET, 0.015),
    ScoreLimit("graur2019", "two largest world sizes", "median error", _ERROR, 0.08),
)


def measure(given: argparse.Namespace) -> Sequence[BenchmarkFigure]:
    """Evaluate both in a store of their own; quickly, one split of one."""
    figures: list[BenchmarkFigure] = []
    with tempfile.TemporaryDirectory(prefix="farm-evaluation-") as name:
        home = Path(name)
        _farm(home, "db", "upgrade")
        if given.quick:
            _farm(home, "import", "anwar2021")
            quick = [_evaluated(home, "anwar2021", "--split", INNER_DELAYS, "--no-few-shot")]
            return [_split_figure(quick, at) for at in SCORE_LIMITS if at.split == INNER_DELAYS]
        for origin in dict.fromkeys(at.origin for at in SCORE_LIMITS):
            _farm(home, "import", origin)
            evaluations = _all_evaluations(home, origin)
            figures += [
                _split_figure(evaluations, at) for at in SCORE_LIMITS if at.origin == origin
            ]
            figures += _interval_figures(evaluations, origin)
            if evaluations[0]["few_shots"]:
                figures.append(_few_shot_figure(evaluations, origin))
    return figures


def _all_evaluations(home: Path, origin: str) -> _Evaluations:
    say(f"{origin}: every split")
    # Of 265 measurements a plan takes long, and no limit is asked for.
    few_shot = "--few-shot" if origin == "anwar2021" else "--no-few-shot"
    evaluations = [_evaluated(home, origin, few_shot)]
    for seed in range(1, SEED_COUNT):
        say(f"{origin}: random folds, dealt out for the {seed + 1}. time")
        options = ("--split", RANDOM, "--seed", str(seed), "--no-few-shot")
        evaluations.append(_evaluated(home, origin, *options))
    return evaluations


def _split_figure(evaluations: _Evaluations, at: ScoreLimit) -> BenchmarkFigure:
    combine = max if at.what.startswith("largest") else statistics.fmean
    ours, theirs = (
        [
            score[at.field[0]][at.field[1]]
            for evaluation in evaluations
            for score in evaluation["splits"]
            if (score["predictor"], score["split"]) == (predictor, at.split)
        ]
        for predictor in (DEFAULT_PREDICTOR, BASELINE)
    )
    found = combine(ours)
    return BenchmarkFigure(
        name=f"{at.origin}, {at.split}: {at.what}",
        unit="ratio",
        ours=found,
        baseline=combine(theirs),
        against=BASELINE,
        limit=f"at most {at.most_ratio * 100:g} %",
        reached=found <= at.most_ratio,
        note=f"{min(ours):.2%} to {max(ours):.2%} in {len(ours)} deals" if len(ours) > 1 else "",
    )


def _interval_figures(evaluations: _Evaluations, origin: str) -> list[BenchmarkFigure]:
    """Hold the 80 % intervals of what left one value out to their coverage and their score."""
    [score] = [
        score
        for score in evaluations[0]["splits"]
        if (score["predictor"], score["split"]) == (DEFAULT_PREDICTOR, POOLED)
    ]
    local, constant = score["intervals"][0]["local"], score["intervals"][0]["constant"]
    covered = local["coverage_ratio"]
    return [
        BenchmarkFigure(
            name=f"{origin}, {POOLED}: within the 80 % interval",
            unit="ratio",
            ours=covered,
            baseline=constant["coverage_ratio"],
            against="of the same width everywhere",
            limit=f"{LEAST_COVERAGE_RATIO * 100:g} to {MOST_COVERAGE_RATIO * 100:g} %",
            reached=LEAST_COVERAGE_RATIO <= covered <= MOST_COVERAGE_RATIO,
            note=f"{local['interval_count']} intervals; the median of high / low - 1 is "
            f"{local['width_ratio']:.0%}, against {constant['width_ratio']:.0%}",
        ),
        BenchmarkFigure(
            name=f"{origin}, {POOLED}: interval score",
            unit="",
            ours=local["log_score"],
            baseline=constant["log_score"],
            against="of the same width everywhere",
            limit="less than that",
            reached=local["log_score"] < constant["log_score"],
        ),
    ]


def _few_shot_figure(evaluations: _Evaluations, origin: str) -> BenchmarkFigure:
    planned, at_random = (
        next(
            score["choices"]["mean_ratio"]
            for score in evaluations[0]["few_shots"]
            if (score["measurement_count"], score["is_planned"]) == (MEASUREMENT_COUNT, is_planned)
        )
        for is_planned in (True, False)
    )
    return BenchmarkFigure(
        name=f"{origin}, {MEASUREMENT_COUNT} planned measurements: mean regret",
        unit="ratio",
        ours=planned,
        baseline=at_random,
        against="as many at random",
        limit=f"at most {FEW_SHOT_LIMIT_RATIO * 100:g} %",
        reached=planned <= FEW_SHOT_LIMIT_RATIO,
    )


def _evaluated(home: Path, origin: str, *options: str) -> Mapping[str, Any]:
    named = ("--predictor", DEFAULT_PREDICTOR, "--predictor", BASELINE)
    evaluation: Mapping[str, Any] = json.loads(
        _farm(home, "evaluate", "--origin", origin, *named, *options, "--json")
    )
    return evaluation


def _farm(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "farm.cli.main", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    done = subprocess.run(
        command,
        env={**kept, "FARM_HOME": str(home)},
        cwd=root(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FarmError(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
