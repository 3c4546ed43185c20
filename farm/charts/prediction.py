"""Charts of predicted against measured step time: each configuration predicted from the others.

Pure, but slow: it fits some ten models, which takes seconds. Needs the extra `ml`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.configuration.words import network_words
from farm.errors import FarmError, NotFound
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Prediction
from farm.text.display import count, duration, percent
from farm.text.plurals import counted

FEWEST_CELLS = 8  # with fewer, what is left of them teaches a predictor nothing
PREDICTED, ERRORS = "predicted", "prediction-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCell:
    """A configuration, its measured median step time, and its prediction without that."""

    configuration: Configuration
    measured_s: float
    prediction: Prediction

    @property
    def is_within(self) -> bool:
        """Whether the measured time is in the 80 % interval."""
        low_s, high_s = self.prediction.low80_s, self.prediction.high80_s
        return low_s is not None and high_s is not None and low_s <= self.measured_s <= high_s


def prediction_figures(
    observations: Sequence[Observation], *, show: Callable[[int, int], None] | None = None
) -> dict[str, Figure]:
    """Return both charts by the name of their files: predicted times, and errors in percent.

    `observations`: of one kind of hardware. `show`: told how many fits are done, of how many.

    Raises:
        NotFound: too few cells were measured, or none could be predicted.
        FarmError: the extra `ml` is not installed.
    """
    try:
        cells = predicted_cells(observations, show=show)
    except ModuleNotFoundError as error:
        raise FarmError(f"predictions need {error.name}: pip install 'benchfarm[ml]'") from None
    known = [cell for cell in cells if cell.prediction.step_time_s is not None]
    if not known:
        raise NotFound("no cell can be predicted from the others: they have too little in common")
    summary = _summary(cells, known)
    return {
        PREDICTED: predicted_figure(known, summary=summary),
        ERRORS: error_figure(known, summary=summary),
    }


def predicted_cells(
    observations: Sequence[Observation], *, show: Callable[[int, int], None] | None = None
) -> list[PredictedCell]:
    """Predict each cell from the others of its workload, held out in random folds.

    Raises:
        NotFound: too few cells were measured.
    """
    # Imported here, since figures are drawn where nothing is predicted, too.
    from farm.recommend.calibrated.splits import Fold, all_splits
    from farm.recommend.calibrated.step_time_model import fit_step_time_model

    works: list[tuple[Sequence[Observation], Fold]] = []
    workloads = [w for w in _workloads(observations) if len(_distinct(w)) >= FEWEST_CELLS]
    if not workloads:
        most = max((len(_distinct(w)) for w in _workloads(observations)), default=0)
        raise NotFound(
            f"{counted(most, 'measured cell is', 'measured cells are')} too few to predict each "
            f"from the others; {FEWEST_CELLS} of one model and data set are needed"
        )
    for workload in workloads:
        # The first are random folds, which keep the repetitions of a cell together.
        works += [(workload, fold) for fold in all_splits(workload)[0].folds]
    cells: list[PredictedCell] = []
    for done, (all_of_it, fold) in enumerate(works):
        if show is not None:
            show(done, len(works))
        training = [all_of_it[i] for i in fold.training]
        times_s = _distinct([all_of_it[i] for i in fold.tested])
        requested = list(times_s)
        model = fit_step_time_model(training, requested=requested)
        cells += [
            PredictedCell(
                configuration=configuration,
                measured_s=statistics.median(times_s[configuration]),
                prediction=prediction,
            )
            for configuration, prediction in zip(requested, model.predict(requested), strict=True)
        ]
    if show is not None:
        show(len(works), len(works))
    return cells


def predicted_figure(cells: Sequence[PredictedCell], *, summary: str) -> Figure:
    """Draw predicted over measured step times, with 80 % intervals, on logarithmic axes."""
    drawn = [(cell, *_times(cell)) for cell in cells]
    every = [v for cell, time_s, _, _ in drawn for v in (cell.measured_s, time_s)]
    ends = [min(every), max(every)]
    marks = [
        (
            cell,
            Mark(x=cell.measured_s, y=time_s, low=low_s, high=high_s, note=_note(cell)),
        )
        for cell, time_s, low_s, high_s in drawn
    ]
    return Figure(
        title="Predicted against measured step time",
        summary=summary,
        x=ChartAxis(title="Measured step time", write=duration, is_log=True),
        y=ChartAxis(title="Predicted step time, 80 % interval", write=duration, is_log=True),
        series=_series(marks, [Mark(x=end_s, y=end_s) for end_s in ends]),
    )


def error_figure(cells: Sequence[PredictedCell], *, summary: str) -> Figure:
    """Draw the errors of the predictions, in percent of the measured times."""
    marks = []
    for cell in cells:
        errors = [v and v / cell.measured_s - 1 for v in _times(cell)]
        middle, low, high = errors
        assert middle is not None, "only what was answered is drawn"
        marks.append(
            (cell, Mark(x=cell.measured_s, y=middle, low=low, high=high, note=_note(cell)))
        )
    ends = [pick(cell.measured_s for cell in cells) for pick in (min, max)]
    return Figure(
        title="Error of the prediction",
        summary=summary,
        x=ChartAxis(title="Measured step time", write=duration, is_log=True),
        y=ChartAxis(title="Predicted against measured", write=_signed),
        series=_series(marks, [Mark(x=end_s, y=0.0) for end_s in ends]),
    )


def _times(cell: PredictedCell) -> tuple[float, float | None, float | None]:
    answer = cell.prediction
    assert answer.step_time_s is not None, "only what was answered is drawn"
    return answer.step_time_s, answer.low80_s, answer.high80_s


def _series(
    marks: Sequence[tuple[PredictedCell, Mark]], equality: Sequence[Mark]
) -> list[ChartSeries]:
    groups = {
        "measured within the interval": [mark for cell, mark in marks if cell.is_within],
        "outside it": [mark for cell, mark in marks if not cell.is_within],
    }
    return [
        ChartSeries(name="as measured", marks=equality, has_dots=False, style=0),
        *(
            ChartSeries(name=name, marks=of, is_joined=False, style=style)
            for style, (name, of) in enumerate(groups.items(), start=1)
            if of
        ),
    ]


def _summary(cells: Sequence[PredictedCell], known: Sequence[PredictedCell]) -> str:
    errors = [abs(_times(cell)[0] / cell.measured_s - 1) for cell in known]
    within = sum(cell.is_within for cell in known)
    summary = (
        f"each cell predicted from the others: median error {percent(statistics.median(errors))}, "
        f"{within} of {len(known)} measured times within the 80 % interval"
    )
    unknown = len(cells) - len(known)
    return summary + (f"; {unknown} could not be predicted" if unknown else "")


def _note(cell: PredictedCell) -> str:
    c = cell.configuration
    parts = [c.strategy or "", f"world size {count(c.world_size)}"]
    parts.append(f"batch {count(c.global_batch_size)}")
    if not c.is_untouched:
        parts.append(network_words(c.by_field))
    time_s, low_s, high_s = _times(cell)
    named = ", ".join(part for part in parts if part)
    predicted = f"{named}: predicted {duration(time_s)} ({duration(low_s)} to {duration(high_s)})"
    return f"{predicted}, measured {duration(cell.measured_s)}"


def _signed(ratio: float | None) -> str:
    return f"{'+' if ratio is not None and ratio > 0 else ''}{percent(ratio)}"


def _workloads(observations: Iterable[Observation]) -> list[list[Observation]]:
    """Return the observations by model, data set and pass: one says nothing about another."""
    found: dict[tuple[object, ...], list[Observation]] = {}
    for one in observations:
        what = one.configuration
        found.setdefault((what.model, what.dataset, what.training_pass), []).append(one)
    return list(found.values())


def _distinct(observations: Iterable[Observation]) -> dict[Configuration, list[float]]:
    times_s: dict[Configuration, list[float]] = {}
    for one in observations:
        times_s.setdefault(one.configuration, []).append(one.step_time_s)
    return times_s
