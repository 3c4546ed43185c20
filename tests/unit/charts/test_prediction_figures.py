"""Predicted against measured: each cell from the others, with its interval and its error."""

from __future__ import annotations

import dataclasses
import sys

import pytest

pytest.importorskip("sklearn", reason="needs the extra ml")

from farm.charts.prediction import (
    FEWEST_CELLS,
    PredictedCell,
    error_figure,
    predicted_figure,
    prediction_figures,
)
from farm.errors import FarmError, NotFound
from farm.recommend.contracts import Basis, Prediction
from tests.truths.synthetic_steps import configuration, grid, measure


def _cell(measured_s: float, predicted_s: float, low_s: float, high_s: float) -> PredictedCell:
    return PredictedCell(
        configuration=configuration(2, 64, 0.02),
        measured_s=measured_s,
        prediction=Prediction(
            step_time_s=predicted_s,
            low_s=low_s / 2,
            high_s=2 * high_s,
            low80_s=low_s,
            high80_s=high_s,
            basis=Basis.INTERPOLATED,
        ),
    )


CELLS = [_cell(0.1, 0.12, 0.09, 0.15), _cell(1.0, 0.5, 0.4, 0.6)]


def test_times_outside_of_the_interval_are_a_series_of_their_own() -> None:
    figure = predicted_figure(CELLS, summary="")
    found = {one.name: [(m.x, m.y, m.low, m.high) for m in one.marks] for one in figure.series}
    assert found["measured within the interval"] == [(0.1, 0.12, 0.09, 0.15)]
    assert found["outside it"] == [(1.0, 0.5, 0.4, 0.6)]
    assert figure.x.is_log
    assert figure.y.is_log
    assert "predicted 120 ms (90.0 ms to 150 ms), measured 100 ms" in figure.series[1].marks[0].note


def test_the_line_of_equality_spans_all_that_is_drawn() -> None:
    equal = predicted_figure(CELLS, summary="").series[0]
    assert [(m.x, m.y) for m in equal.marks] == [(0.1, 0.1), (1.0, 1.0)]
    assert not equal.has_dots


def test_errors_are_relative_to_what_was_measured() -> None:
    figure = error_figure(CELLS, summary="")
    [within], [outside] = (one.marks for one in figure.series[1:])
    assert within.y == pytest.approx(0.2)
    assert within.low == pytest.approx(-0.1)
    assert within.high == pytest.approx(0.5)
    assert outside.y == pytest.approx(-0.5)
    assert figure.y.write(within.y) == "+20 %"


def test_each_cell_is_predicted_once_from_the_others() -> None:
    observations = measure(grid(world_sizes=(1, 2, 4), batches=(64, 256), delays_s=(0.0, 0.02)))
    twice = [
        *observations,
        *(dataclasses.replace(o, measurement_id=o.measurement_id + 999) for o in observations),
    ]
    figures = prediction_figures(twice)
    assert list(figures) == ["predicted", "prediction-error"]
    dots = [m for one in figures["predicted"].series if one.has_dots for m in one.marks]
    cells = {o.configuration for o in observations}
    unknown = len(cells) - len(dots)
    assert unknown == 0
    assert sorted(m.x for m in dots) == pytest.approx(sorted(o.step_time_s for o in observations))
    assert "measured times within the 80 % interval" in figures["predicted"].summary


def test_too_few_cells_are_told_in_one_line() -> None:
    few = measure(grid(world_sizes=(1, 2), batches=(64, 128), delays_s=(0.0,)))
    with pytest.raises(NotFound, match=f"^4 measured cells are too few .*; {FEWEST_CELLS} of one"):
        prediction_figures(few)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "farm.recommend.calibrated.step_time_model", None)
    with pytest.raises(FarmError, match=r"pip install 'benchfarm\[ml\]'"):
        prediction_figures(measure(grid(batches=(64, 128))))
