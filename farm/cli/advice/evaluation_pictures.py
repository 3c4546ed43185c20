"""The figures of an evaluation as SVG, the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.charts.files.look import file_of
from farm.charts.prediction import PredictedCell, predicted_figure
from farm.text.display import count, percent

if TYPE_CHECKING:
    from farm.recommend.evaluating.evaluate import PredictorEvaluation, SplitScore
    from farm.recommend.evaluating.few_shot import FewShotScore
    from farm.recommend.evaluating.scores import HeldOutAnswer

_AIMS = (0.8, 0.9)  # of the intervals, in the order of `SplitScore.intervals`


def draw(evaluation: PredictorEvaluation) -> Mapping[str, tuple[bytes, str]]:
    """Return each picture's SVG and what it shows in words, by name."""
    first = evaluation.predictors[0]
    own = [score for score in evaluation.splits if score.predictor == first]
    figures = {
        "errors": _errors(evaluation.splits, evaluation.predictors),
        "predicted": _predicted(evaluation.outcomes, first),
        "coverage": _coverage(own, first),
    }
    if evaluation.few_shots:
        figures["few-shot"] = _few_shot(evaluation.few_shots, first)
    return {
        name: (file_of(draw_charts([figure], row_height_in=4.6), "svg"), figure.summary)
        for name, figure in figures.items()
    }


def _errors(scores: Sequence[SplitScore], predictors: Sequence[str]) -> Figure:
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


def _predicted(outcomes: Sequence[HeldOutAnswer], predictor: str) -> Figure:
    cells = [
        PredictedCell(
            configuration=outcome.observation.configuration,
            measured_s=outcome.observation.step_time_s,
            prediction=outcome.prediction,
        )
        for outcome in outcomes
        if outcome.prediction.low80_s is not None
    ]
    said = f"Predicted against measured step time, held out, by {predictor}, with 80 % intervals."
    if not cells:
        none = ChartAxis(title="")
        return Figure(title="nothing was predicted", summary=said, x=none, y=none, series=[])
    return predicted_figure(cells, said=said)


def _coverage(scores: Sequence[SplitScore], predictor: str) -> Figure:
    series = []
    for index, aim in enumerate(_AIMS):
        name = f"{percent(aim)} interval"
        ends = [Mark(x=aim, y=0), Mark(x=aim, y=1 - len(scores))]
        found = [
            Mark(x=coverage, y=-position)
            for position, score in enumerate(scores)
            if (coverage := score.intervals[index].local.coverage_ratio) is not None
        ]
        series.append(ChartSeries(name=name, marks=ends, has_dots=False, style=1 + index))
        series.append(ChartSeries(name=name, marks=found, is_joined=False, style=1 + index))
    said = f"How many measurements fell into the intervals of {predictor}, by what was held out."
    return Figure(
        title="",
        summary=said,
        x=ChartAxis(title="measurements within the interval", write=_percent),
        y=_splits([score.split for score in scores]),
        series=series,
    )


def _few_shot(scores: Sequence[FewShotScore], predictor: str) -> Figure:
    return Figure(
        title="",
        summary=f"Mean regret of the choices of {predictor} after few measurements.",
        x=ChartAxis(title="measurements", write=count, is_counted=True),
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
    return percent(ratio, 1)
