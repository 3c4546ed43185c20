"""Writes an evaluation as tables and pictures, and as a Markdown page of them.

The pictures are SVG, the same bytes for the same data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.charts.files.style import file_of
from farm.charts.prediction import PredictedCell, predicted_figure
from farm.errors import InvalidSpec
from farm.processes.whole_file import write_whole
from farm.recommend.contracts import AIMS
from farm.text import display
from farm.text.columns import Column
from farm.text.plurals import counted

if TYPE_CHECKING:
    from farm.recommend.evaluating.evaluate import DoubtInWords, PredictorEvaluation, SplitScore
    from farm.recommend.evaluating.few_shot import FewShotScore
    from farm.recommend.evaluating.scores import HeldOutAnswer, RegretScore

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


_HELD_OUT = """\
*Held out* is what a predictor did not see. `random`: {random}.
`batch`, `delay`, `world size`, `strategy`, `network`: all measurements of one value, each value in
turn. `two largest world sizes`: both together. What has a name that was never seen is *unknown*,
which is no error.

*Error* is |predicted / measured - 1|, here its median over all that was held out and answered."""
_CHOICES = """\
A choice takes what is predicted to be least of {objective}.
Its *regret* is how much more of that it really takes than the best. What was not held out enters a
choice with its measured time, as in an answer. *Unseen* are the regrets where every option has the
prediction of the fold that held it out."""
_INTERVALS = """\
*In 80 %* is how many of the measurements fell into the 80 % interval, *width* the median of its
high / low - 1, *score* the mean interval score of ln(time): less is better. *Constant* is the score
of intervals that are equally wide everywhere, calibrated on the same errors. What was held out has
no part in any calibration."""
_FEW = """\
Starting from nothing, in the order in which the planner asks for measurements, or at random. What
was measured has its measured time, with an error of 2 %, and `{predictor}` predicts the rest."""


def write_report(evaluation: PredictorEvaluation, folder: Path) -> list[Path]:
    """Write the page and its pictures, named after the origin; return where they are.

    Raises:
        InvalidSpec: the folder cannot be written to.
        FarmError: matplotlib is not installed.
    """
    # An origin is free text: no path, and nothing that would end a link.
    stem = re.sub(r"[^\w.-]", "_", evaluation.origin).lstrip(".") or "origin"
    images = folder / "images"
    try:
        images.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSpec("--report", str(folder), f"a folder ({error.strerror})") from None
    links: dict[str, str] = {}
    paths = []
    for name, (content, alt) in pictures_of(evaluation).items():
        path = images / f"{stem}-{name}.svg"
        write_whole(path, content)
        paths.append(path)
        links[name] = f"![{alt}]({path.relative_to(folder)})"
    page = folder / f"{stem}.md"
    write_whole(page, page_of(evaluation, links).encode())
    return [page, *paths]


def page_of(evaluation: PredictorEvaluation, pictures: Mapping[str, str]) -> str:
    """Return the page's Markdown; `pictures`: the link to each by its name."""
    workload = " on ".join(name for name in (evaluation.model, evaluation.dataset) if name)
    first = evaluation.predictors[0]
    own = [score for score in evaluation.splits if score.predictor == first]
    parts = [
        f"# {evaluation.origin}: how good the predictions are",
        f"{workload}: {counted(evaluation.observation_count, 'measurement')} with a time, "
        f"{evaluation.failure_count} that failed. Written by "
        f"`farm evaluate --origin {evaluation.origin} --seed {evaluation.seed} --report FOLDER`.",
        "## Errors",
        _HELD_OUT.format(random=_random_words(evaluation)),
        _errors(evaluation),
        pictures["errors"],
        f"## Choices of `{first}`",
        _CHOICES.format(objective=_objective(evaluation)),
        _table(CHOICE_COLUMNS, [choice_cells(score) for score in own]),
        f"## Intervals of `{first}`",
        _INTERVALS,
        _table(INTERVAL_COLUMNS, [interval_cells(score) for score in own]),
        pictures["coverage"],
        pictures["predicted"],
    ]
    if evaluation.few_shots:
        parts += [
            "## After few measurements",
            _FEW.format(predictor=first),
            _table(FEW_SHOT_COLUMNS, [few_shot_cells(score) for score in evaluation.few_shots]),
            pictures["few-shot"],
        ]
    if evaluation.suspicious:
        parts += [
            "## Suspicious measurements",
            "They count less, as the table says, and nothing is left out.",
            _table(DOUBT_COLUMNS, [doubt_cells(doubt) for doubt in evaluation.suspicious]),
        ]
    if len(evaluation.predictors) > 1:
        others = [score for score in evaluation.splits if score.predictor != first]
        parts += [
            "## The other predictors",
            _table(CHOICE_COLUMNS, [choice_cells(score) for score in others]),
        ]
    return "\n\n".join(parts) + "\n"


def _random_words(evaluation: PredictorEvaluation) -> str:
    together = (
        "all batch sizes of one strategy, network and world size together"
        if evaluation.is_weak
        else "repetitions together"
    )
    return f"a tenth of the configurations at a time, {together}"


def _objective(evaluation: PredictorEvaluation) -> str:
    time = "time per example" if evaluation.is_weak else "step time"
    if not evaluation.machine_price:
        return time
    return f"{time} x (1 + machines / {1 / evaluation.machine_price:g})"


def _errors(evaluation: PredictorEvaluation) -> str:
    """Set the predictors' median errors beside each other."""
    found = {(s.predictor, s.split): s.errors.median_ratio for s in evaluation.splits}
    columns = [Column("held out"), *(Column(name, is_right=True) for name in evaluation.predictors)]
    rows = [
        [split, *(display.percent(found[name, split], digits=2) for name in evaluation.predictors)]
        for split in dict.fromkeys(score.split for score in evaluation.splits)
    ]
    return _table(columns, rows)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        " | ".join(column.title for column in columns),
        " | ".join("---:" if column.is_right else "---" for column in columns),
        *(" | ".join(display.plain(cell).replace("|", "\\|") for cell in row) for row in rows),
    ]
    return "\n".join(f"| {line} |" for line in lines)


def pictures_of(evaluation: PredictorEvaluation) -> Mapping[str, tuple[bytes, str]]:
    """Return each picture's SVG and what it shows in words, by name."""
    first = evaluation.predictors[0]
    own = [score for score in evaluation.splits if score.predictor == first]
    figures = {
        "errors": _errors_figure(evaluation.splits, evaluation.predictors),
        "predicted": _predicted_figure(evaluation.outcomes, first),
        "coverage": _coverage_figure(own, first),
    }
    if evaluation.few_shots:
        figures["few-shot"] = _few_shot_figure(evaluation.few_shots, first)
    return {
        name: (file_of(draw_charts([figure], row_height_in=4.6), "svg"), figure.summary)
        for name, figure in figures.items()
    }


def _errors_figure(scores: Sequence[SplitScore], predictors: Sequence[str]) -> Figure:
    names = list(dict.fromkeys(score.split for score in scores))
    return Figure(
        title="",
        summary="Median error of each predictor, by what was held out.",
        x=ChartAxis(title="median error, of the measured time", write=_percent, is_log=True),
        y=_splits(names),
        series=[
            ChartSeries(
                name=predictor,
                marks=[
                    Mark(x=score.errors.median_ratio, y=-names.index(score.split))
                    for score in scores
                    if score.predictor == predictor and score.errors.median_ratio
                ],
                is_joined=False,
            )
            for predictor in predictors
        ],
    )


def _predicted_figure(outcomes: Sequence[HeldOutAnswer], predictor: str) -> Figure:
    cells = [
        PredictedCell(
            configuration=outcome.observation.configuration,
            measured_s=outcome.observation.step_time_s,
            prediction=outcome.prediction,
        )
        for outcome in outcomes
        if outcome.prediction.low80_s is not None
    ]
    summary = (
        f"Predicted against measured step time, held out, by {predictor}, with 80 % intervals."
    )
    if not cells:
        none = ChartAxis(title="")
        return Figure(title="nothing was predicted", summary=summary, x=none, y=none, series=[])
    return predicted_figure(cells, summary=summary)


def _coverage_figure(scores: Sequence[SplitScore], predictor: str) -> Figure:
    series = []
    for index, aim in enumerate(AIMS):
        name = f"{display.percent(aim)} interval"
        ends = [Mark(x=aim, y=0), Mark(x=aim, y=1 - len(scores))]
        found = [
            Mark(x=coverage, y=-position)
            for position, score in enumerate(scores)
            if (coverage := score.intervals[index].local.coverage_ratio) is not None
        ]
        series.append(ChartSeries(name=name, marks=ends, has_dots=False, style=1 + index))
        series.append(ChartSeries(name=name, marks=found, is_joined=False, style=1 + index))
    summary = f"How many measurements fell into the intervals of {predictor}, by what was held out."
    return Figure(
        title="",
        summary=summary,
        x=ChartAxis(title="measurements within the interval", write=_percent),
        y=_splits([score.split for score in scores]),
        series=series,
    )


def _few_shot_figure(scores: Sequence[FewShotScore], predictor: str) -> Figure:
    return Figure(
        title="",
        summary=f"Mean regret of the choices of {predictor} after few measurements.",
        x=ChartAxis(title="measurements", write=display.count, is_counted=True),
        y=ChartAxis(title="mean regret", write=_percent),
        series=[
            ChartSeries(
                name=name,
                marks=[
                    Mark(x=score.measurement_count, y=score.choices.mean_ratio)
                    for score in scores
                    if score.is_planned is is_planned and score.choices.mean_ratio is not None
                ],
            )
            for is_planned, name in ((True, "planned"), (False, "at random"))
        ],
    )


def _splits(names: Sequence[str]) -> ChartAxis:
    """Return an axis that names what was held out, the first, at 0, above the second, at -1."""

    def write(place: float | None) -> str:
        return "" if place is None else names[-round(place)]

    return ChartAxis(title="", write=write, is_counted=True, most_counted=max(1, len(names)))


def _percent(ratio: float | None) -> str:
    return display.percent(ratio, 1)
