"""Charts with intervals: as SVG text, and as what plotly reads."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from farm.core.display import count, duration
from farm.figures.chart import ChartAxis, Figure, Mark, Series, ends, ticks
from web.drawing.figure_svg import draw, drawn
from web.drawing.plotly_figure import to_plotly

SVG = "{http://www.w3.org/2000/svg}"
SIZES = ChartAxis(title="World size", write=count, is_counted=True)
TIME = ChartAxis(title="Time", write=duration)


def _figure(*series: Series, x: ChartAxis = SIZES, y: ChartAxis = TIME) -> Figure:
    return Figure(title="Time", summary="from 1 s to 4 s", x=x, y=y, series=series)


def _marks(*points: tuple[float, float]) -> list[Mark]:
    return [Mark(x=x, y=y, low=y * 0.9, high=y * 1.2) for x, y in points]


def _svg(figure: Figure) -> ElementTree.Element:
    text = str(draw(figure)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return ElementTree.fromstring(text)


def test_a_mark_has_its_interval_and_stays_inside() -> None:
    svg = _svg(_figure(Series(name="ring", marks=_marks((1, 4.0), (2, 2.5), (4, 1.0)))))
    box = [float(n) for n in svg.attrib["viewBox"].split()]
    dots = svg.findall(f"{SVG}circle")
    assert len(dots) == 3
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= box[2]
        assert 0 <= float(dot.attrib["cy"]) <= box[3]
    heights = [float(dot.attrib["cy"]) for dot in dots]
    assert heights == sorted(heights)  # less time is further down, and y grows downwards
    whiskers = [p for p in svg.findall(f"{SVG}path") if "whisker" in p.attrib["class"]]
    assert len(whiskers) == 3
    for dot, whisker in zip(dots, whiskers, strict=True):
        low, high = re.findall(r"^M[\d.]+ ([\d.]+)V([\d.]+)", whisker.attrib["d"])[0]
        assert float(high) < float(dot.attrib["cy"]) < float(low)


def test_what_is_predicted_is_hollow_and_an_unknown_interval_is_not_drawn() -> None:
    marks = [Mark(x=1, y=1.0), Mark(x=2, y=0.7, is_solid=False)]
    svg = _svg(_figure(Series(name="ring", marks=marks)))
    assert [dot.attrib["class"] for dot in svg.findall(f"{SVG}circle")] == ["dot s0", "hollow s0"]
    assert not [p for p in svg.findall(f"{SVG}path") if "whisker" in p.attrib["class"]]


def test_series_are_joined_only_where_they_say_so() -> None:
    marks = _marks((1, 1.0), (2, 2.0))
    svg = _svg(
        _figure(Series(name="front", marks=marks), Series(name="x", marks=marks, is_joined=False))
    )
    assert [line.attrib["class"] for line in svg.findall(f"{SVG}polyline")] == ["line s0"]


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
    svg = _svg(_figure(Series(name="a", marks=[Mark(x=1, y=v) for v in values]), y=axis))
    assert len(svg.findall(f"{SVG}circle")) == len(values)


def test_nothing_but_zeros_can_be_drawn() -> None:
    svg = _svg(_figure(Series(name="a", marks=[Mark(x=1, y=0.0), Mark(x=2, y=0.0)])))
    assert len(svg.findall(f"{SVG}circle")) == 2


def test_a_figure_without_marks_says_so() -> None:
    assert "<svg" not in str(draw(_figure()))


def test_names_are_text_to_a_browser_and_to_plotly() -> None:
    evil = "<b>x</b><a href='javascript:alert(1)'>y</a>"
    marks = [Mark(x=1, y=1.0, note=evil)]
    figure = _figure(Series(name=evil, marks=marks), Series(name="other", marks=marks))
    shown = drawn(figure)
    assert "<b>" not in str(shown.svg)
    assert "style=" not in str(shown.svg)
    assert "<" not in json.dumps(shown.data).replace("<extra></extra>", "")  # plotly's own
    assert "&lt;b&gt;" in json.dumps(shown.data)


def test_plotly_gets_the_intervals_as_distances_and_gaps_where_there_are_none() -> None:
    marks = [Mark(x=1, y=2.0, low=1.5, high=3.0), Mark(x=2, y=1.0, is_solid=False)]
    data = to_plotly(_figure(Series(name="ring", marks=marks)))["data"]
    assert isinstance(data, list)
    [trace] = data
    assert trace["error_y"]["array"] == [1.0, None]
    assert trace["error_y"]["arrayminus"] == [0.5, None]
    assert trace["marker"]["symbol"] == ["circle", "circle-open"]


def test_a_chart_tells_what_it_shows_to_who_cannot_see_it() -> None:
    svg = _svg(_figure(Series(name="ring", marks=_marks((1, 4.0)))))
    assert svg.attrib["aria-label"] == "Time: from 1 s to 4 s"
