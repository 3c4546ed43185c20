"""Charts with intervals: as tables, and as what plotly reads."""

from __future__ import annotations

import json

import pytest

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark, ends, ticks
from farm.charts.figure_table import MOST_FIGURE_ROWS, figure_table
from farm.text.display import MISSING, count, duration
from web.drawing.rendered import drawn, to_plotly

SIZES = ChartAxis(title="World size", write=count, is_counted=True)
TIME = ChartAxis(title="Time", write=duration)


def _figure(*series: ChartSeries, x: ChartAxis = SIZES, y: ChartAxis = TIME) -> Figure:
    return Figure(title="Time", summary="from 1 s to 4 s", x=x, y=y, series=series)


def _marks(*points: tuple[float, float]) -> list[Mark]:
    return [Mark(x=x, y=y, low=y * 0.9, high=y * 1.2) for x, y in points]


def test_the_table_has_every_mark_with_its_interval() -> None:
    marks = [*_marks((1, 4.0)), Mark(x=2, y=0.7, is_solid=False)]
    table = figure_table(_figure(ChartSeries(name="ring", marks=marks)))
    assert table.titles == ("", "World size", "Time", "Interval")
    assert table.rows == (
        ("ring", "1", "4.00 s", "3.60 s to 4.80 s"),
        ("ring", "2", "700 ms", MISSING),
    )
    assert table.left_out == 0


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    table = figure_table(
        _figure(ChartSeries(name="ring", marks=_marks(*((n, 1.0) for n in range(1, 251)))))
    )
    assert (len(table.rows), table.left_out) == (MOST_FIGURE_ROWS, 250 - MOST_FIGURE_ROWS)


def test_series_are_joined_only_where_they_say_so() -> None:
    marks = _marks((1, 1.0), (2, 2.0))
    data = to_plotly(
        _figure(
            ChartSeries(name="front", marks=marks),
            ChartSeries(name="x", marks=marks, is_joined=False),
        )
    )["data"]
    assert isinstance(data, list)
    assert [trace["mode"] for trace in data] == ["lines+markers", "markers"]


def test_counted_values_are_the_ticks_and_many_of_them_are_thinned() -> None:
    assert ticks(SIZES, [4, 1, 2, 2]) == [1, 2, 4]
    many = ticks(SIZES, list(range(1, 101)))
    assert len(many) <= 8
    assert set(many) <= set(range(1, 101))


@pytest.mark.parametrize("top", [3e-4, 0.07, 1.0, 9.99, 12_345.0])
def test_ticks_are_round_and_within_the_axis(top: float) -> None:
    low, high = ends(TIME, [top / 3, top])
    found = ticks(TIME, [top / 3, top])
    assert low == 0
    assert high >= top
    assert 3 <= len(found) <= 7
    assert all(low <= value <= high for value in found)
    assert found == sorted(found)


@pytest.mark.parametrize("values", [[1.0], [0.003, 2000.0], [0.5, 0.6]])
def test_a_logarithmic_axis_has_ticks_wherever_it_lies(values: list[float]) -> None:
    axis = ChartAxis(title="Time", write=duration, is_log=True)
    low, high = ends(axis, values)
    assert 0 < low <= min(values) <= max(values) <= high
    found = ticks(axis, values)
    assert found
    assert all(low <= value <= high for value in found)


def test_nothing_but_zeros_can_be_drawn() -> None:
    assert drawn(_figure(ChartSeries(name="a", marks=[Mark(x=1, y=0.0), Mark(x=2, y=0.0)]))).json


def test_a_figure_without_marks_has_nothing_to_draw() -> None:
    assert not drawn(_figure()).json


def test_names_are_text_to_a_browser_and_to_plotly() -> None:
    evil = "<b>x</b><a href='javascript:alert(1)'>y</a>"
    marks = [Mark(x=1, y=1.0, note=evil)]
    figure = _figure(ChartSeries(name=evil, marks=marks), ChartSeries(name="other", marks=marks))
    shown = drawn(figure)
    assert "<" not in shown.json
    text = json.dumps(json.loads(shown.json)["data"])
    assert "<" not in text.replace("<extra></extra>", "")  # plotly's own
    assert "&lt;b&gt;" in text


def test_plotly_gets_the_intervals_as_distances_and_gaps_where_there_are_none() -> None:
    marks = [Mark(x=1, y=2.0, low=1.5, high=3.0), Mark(x=2, y=1.0, is_solid=False)]
    data = to_plotly(_figure(ChartSeries(name="ring", marks=marks)))["data"]
    assert isinstance(data, list)
    [trace] = data
    assert trace["error_y"]["array"] == [1.0, None]
    assert trace["error_y"]["arrayminus"] == [0.5, None]
    assert trace["marker"]["symbol"] == ["circle", "circle-open"]
