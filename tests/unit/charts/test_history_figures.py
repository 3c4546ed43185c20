"""The figure of a cell's history: panels, certainty, and the words of what changed."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

from farm.cells.configuration import CellConfiguration
from farm.cells.history import CellHistory, HistoryPoint
from farm.cells.table import CellLine, CellState
from farm.charts.figure_table import figure_table
from farm.charts.history import history_figures
from farm.measuring.noise import Disturbance, NoiseKind
from farm.measuring.precision import Repetition, RepetitionState
from farm.measuring.quantities import QUANTITIES
from tests.factories import NOW
from web.drawing.rendered import to_plotly

CELL = CellConfiguration(place=())


def point(day: int, *times_s: float, is_disturbed: bool = False, **fields: Any) -> HistoryPoint:
    repetitions = [
        Repetition(job_id=n, state=RepetitionState.MEASURED, step_time_s=time_s)
        for n, time_s in enumerate(times_s)
    ]
    median_s = sorted(times_s)[len(times_s) // 2] if times_s else None
    line = CellLine(
        cell_hash="a",
        configuration=CELL,
        state=CellState.MEASURED if times_s else CellState.FAILED,
        repetitions=tuple(repetitions),
        precision=None,
        medians=tuple(median_s if one.name == "step_time_s" else None for one in QUANTITIES),
        disturbed=(Disturbance(weight=0.5, kinds=(NoiseKind.STEAL,)),) if is_disturbed else (),
    )
    values: dict[str, Any] = {"machine": "A CPU", "software": {}, **fields}
    return HistoryPoint(
        sweep_id=day,
        sweep_name=f"day {day}",
        measured_at=NOW + dt.timedelta(days=day),
        line=line,
        **values,
    )


def history(*points: HistoryPoint) -> CellHistory:
    return CellHistory(job_id=1, configuration=CELL, points=points, next_id=None)


POINTS = (
    point(0, 0.100, 0.101, 0.099),
    point(1, 0.2),
    point(2, 0.120, 0.121, 0.119, changes=("torch 2.13.0 -> 2.13.1", "kernel 6.1 -> 6.2" * 3)),
    point(3, 0.3, 0.3, 0.31, is_disturbed=True),
    point(4),
    point(5, 0.1, machine="Another"),
    point(6, 0.1, machine=None),
)


def test_colour_and_form_say_how_sure_a_point_is() -> None:
    figure = history_figures(history(*POINTS))[0]
    found = {series.name: [mark.x for mark in series.marks] for series in figure.series}
    assert found == {
        "95 % interval known": [1, 3],
        "fewer than 3 repetitions": [2],
        "disturbed": [4],
    }
    solid = {series.name for series in figure.series if all(m.is_solid for m in series.marks)}
    assert solid == {"95 % interval known"}
    assert figure.series[0].marks[0].low is not None


def test_each_kind_of_machine_has_a_panel_and_a_history_without_times_none() -> None:
    figures = history_figures(history(*POINTS))
    assert [figure.title for figure in figures] == ["A CPU", "Another", "unknown machines"]
    many = [point(0, 0.1, machine=f"CPU {n}") for n in range(9)]
    assert len(history_figures(history(*many))) == 4
    assert history_figures(history(point(4))) == []


def test_what_changed_is_said_where_it_happened() -> None:
    figure = history_figures(history(*POINTS))[0]
    [event] = figure.events
    assert event.x == 2.5
    assert event.text.startswith("torch 2.13.0 -> 2.13.1; kernel")
    assert len(event.text) == 34
    assert figure_table(figure).rows[-1][:2] == (event.text, "2026-03-03")
    drawn: Any = to_plotly(figure)
    assert [one["x"] for one in drawn["events"]] == [2.5]
    assert "events" not in to_plotly(dataclasses.replace(figure, events=()))


def test_both_drawings_have_the_words_whatever_they_are() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    from farm.charts.files.charts import draw_charts
    from farm.charts.files.style import file_of

    odd = point(1, 0.1, changes=("driver $x -> <b>$y$</b>",))
    [figure] = history_figures(history(POINTS[0], odd))
    drawing: Any = draw_charts([figure])
    [ax] = drawing.axes
    assert "driver $x -> <b>$y$</b>" in [text.get_text() for text in ax.texts]
    assert file_of(drawing, "svg")
    drawn: Any = to_plotly(figure)
    assert "<b>" not in drawn["events"][0]["text"]
