"""The pictures of an evaluation, as SVG that is the same whenever it is drawn from the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from farm.charts.files.charts import draw_charts
from farm.charts.files.look import COLOURS, file_of, panels
from farm.charts.prediction import PredictedCell, predicted_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from farm.recommend.evaluating.evaluate import FewShotScore, SplitScore
    from farm.recommend.evaluating.evaluation import PredictorEvaluation
    from farm.recommend.evaluating.scores import HeldOutAnswer

_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)  # of errors in %
_COLOURS = COLOURS[1:]
_MARKERS = "oxs^Dv"


def draw(evaluation: PredictorEvaluation) -> Mapping[str, tuple[bytes, str]]:
    """Return each picture's SVG and what it shows in words, by name."""
    first = evaluation.predictors[0]
    own = [score for score in evaluation.splits if score.predictor == first]
    found = {
        "errors": (
            _figure(lambda axes: _errors(axes, evaluation.splits, evaluation.predictors)),
            "Median error of each predictor, by what was held out.",
        ),
        "predicted": (
            _predicted(evaluation.outcomes),
            f"Predicted against measured step time, held out, by {first}, with 80 % intervals.",
        ),
        "coverage": (
            _figure(lambda axes: _coverage(axes, own)),
            f"How many measurements fell into the intervals of {first}, by what was held out.",
        ),
    }
    if evaluation.few_shots:
        found["few-shot"] = (
            _figure(lambda axes: _few_shot(axes, evaluation.few_shots), width_in=5.5),
            f"Mean regret of the choices of {first} after few measurements.",
        )
    return {name: (file_of(figure, "svg"), said) for name, (figure, said) in found.items()}


def _figure(plot: Callable[[Axes], None], *, width_in: float = 7.5) -> Figure:
    with panels(1, 1, width_in=width_in, row_height_in=3.4) as (figure, [axes]):
        plot(axes)
    return figure


def _errors(axes: Axes, scores: Sequence[SplitScore], predictors: Sequence[str]) -> None:
    names = list(dict.fromkeys(score.split for score in scores))
    for index, predictor in enumerate(predictors):
        points = [
            (names.index(score.split), score.errors.median_ratio * 100)
            for score in scores
            if score.predictor == predictor and score.errors.median_ratio
        ]
        axes.plot(
            [value for _, value in points],
            [position for position, _ in points],
            _MARKERS[index % len(_MARKERS)],
            color=_COLOURS[index % len(_COLOURS)],
            label=predictor,
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("median error in % of the measured time")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _predicted(outcomes: Sequence[HeldOutAnswer]) -> Figure:
    cells = [
        PredictedCell(
            configuration=outcome.observation.configuration,
            measured_s=outcome.observation.step_time_s,
            prediction=outcome.prediction,
        )
        for outcome in outcomes
        if outcome.prediction.low80_s is not None
    ]
    return draw_charts([predicted_figure(cells, said="")] if cells else [], row_height_in=4.6)


def _coverage(axes: Axes, scores: Sequence[SplitScore]) -> None:
    for index, (aim, marker) in enumerate(((0.8, "o"), (0.9, "s"))):
        axes.axvline(aim * 100, color=_COLOURS[index], linewidth=0.8)
        points = [
            (position, coverage * 100)
            for position, score in enumerate(scores)
            if (coverage := score.intervals[index].local.coverage_ratio) is not None
        ]
        axes.plot(
            [value for _, value in points],
            [position for position, _ in points],
            marker,
            color=_COLOURS[index],
            label=f"{aim * 100:.0f} % interval",
        )
    axes.set_yticks(range(len(scores)), [score.split for score in scores])
    axes.invert_yaxis()
    axes.set_xlabel("measurements within the interval in %")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _few_shot(axes: Axes, scores: Sequence[FewShotScore]) -> None:
    for index, (is_planned, label) in enumerate(((True, "planned"), (False, "at random"))):
        points = [
            (score.measurement_count, score.choices.mean_ratio * 100)
            for score in scores
            if score.is_planned is is_planned and score.choices.mean_ratio is not None
        ]
        axes.plot(*zip(*points, strict=True), "o-", color=_COLOURS[index], label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("measurements")
    axes.set_ylabel("mean regret in %")
    axes.legend()
