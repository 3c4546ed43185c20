"""The pictures of an evaluation, as SVG that is the same whenever it is drawn from the same."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from farm.recommend.evaluating.evaluate import FewShotScore, SplitScore
    from farm.recommend.evaluating.evaluation import Evaluation
    from farm.recommend.evaluating.scores import Outcome

_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)  # of errors in %
_COLOURS = ("#1f6feb", "#d9730d", "#2da44e", "#8250df", "#6e7781", "#bf3989")


def draw(evaluation: Evaluation) -> Mapping[str, tuple[bytes, str]]:
    """Return each picture's SVG and what it shows in words, by name."""
    first = evaluation.predictors[0]
    own = [score for score in evaluation.splits if score.predictor == first]
    with mpl.rc_context(
        {
            "svg.hashsalt": "benchfarm",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
        }
    ):
        found = {
            "errors": (
                _figure(lambda axes: _errors(axes, evaluation.splits, evaluation.predictors)),
                "Median error of each predictor, by what was held out.",
            ),
            "predicted": (
                _figure(lambda axes: _predicted(axes, evaluation.outcomes), width=4.6, height=4.6),
                f"Predicted against measured step time, held out, by {first}, with 80 % intervals.",
            ),
            "coverage": (
                _figure(lambda axes: _coverage(axes, own)),
                f"How many measurements fell into the intervals of {first}, by what was held out.",
            ),
        }
        if evaluation.few_shots:
            found["few-shot"] = (
                _figure(lambda axes: _few_shot(axes, evaluation.few_shots), width=5.5),
                f"Mean regret of the choices of {first} after few measurements.",
            )
    return found


def _figure(plot: Callable[[Axes], None], *, width: float = 7.5, height: float = 3.4) -> bytes:
    figure = Figure(figsize=(width, height), layout="constrained")
    plot(figure.subplots())
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    # Its lines end in spaces, which no text file of a repository should.
    return b"\n".join(line.rstrip() for line in content.getvalue().splitlines()) + b"\n"


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
            "o" if index == 0 else "x",
            color=_COLOURS[index % len(_COLOURS)],
            label=predictor,
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("median error in % of the measured time")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _predicted(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        answer, measured_s = outcome.prediction, outcome.observation.step_time_s
        if answer.step_time_s is None or answer.low80_s is None or answer.high80_s is None:
            continue
        is_in = answer.low80_s <= measured_s <= answer.high80_s
        colour = _COLOURS[0] if is_in else _COLOURS[1]
        axes.plot([measured_s] * 2, [answer.low80_s, answer.high80_s], color=colour, alpha=0.35)
        axes.plot(measured_s, answer.step_time_s, ".", color=colour)
    axes.plot([], [], ".", color=_COLOURS[0], label="within the interval")
    axes.plot([], [], ".", color=_COLOURS[1], label="outside it")
    axes.legend(frameon=False)
    axes.axline((1, 1), slope=1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured step time in s")
    axes.set_ylabel("predicted step time in s")


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
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


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
    axes.legend(frameon=False)
