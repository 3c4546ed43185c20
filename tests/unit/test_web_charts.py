"""Line charts as SVG text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from web.charts import Chart, Points, draw
from web.display import byte_rate, percent

SVG = "{http://www.w3.org/2000/svg}"


def _svg(points: Points, **changes: object) -> ElementTree.Element:
    chart = Chart("CPU", {"rank 0": points}, percent, **changes)  # type: ignore[arg-type]
    text = str(draw(chart, gap_s=1.5)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return ElementTree.fromstring(text)


def _places(line: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in line.attrib["points"].split()]
    return [(float(x), float(y)) for x, y in pairs]


def test_a_line_is_broken_at_a_missing_tick_and_at_a_missing_value() -> None:
    points: Points = [(0, 0.1), (1, 0.2), (3, 0.3), (4, None), (5, 0.1), (6, 0.2)]
    svg = _svg(points)
    assert [len(_places(line)) for line in svg.findall(f"{SVG}polyline")] == [2, 2]
    assert len(svg.findall(f"{SVG}circle")) == 1  # tick 3, alone between two holes


def test_a_missing_value_breaks_a_line_however_close_its_neighbours_are() -> None:
    svg = _svg([(0.0, 0.1), (0.2, 0.1), (0.4, None), (0.6, 0.1), (0.8, 0.1)])
    assert [len(_places(line)) for line in svg.findall(f"{SVG}polyline")] == [2, 2]


def test_larger_values_are_higher_and_stay_inside() -> None:
    svg = _svg([(0, 0.0), (1, 0.5), (2, 2.0)], top=1.0)
    [line] = svg.findall(f"{SVG}polyline")
    heights = [y for _, y in _places(line)]
    assert heights == sorted(heights, reverse=True)
    box = [float(n) for n in svg.attrib["viewBox"].split()]
    assert all(0 <= x <= box[2] and 0 <= y <= box[3] for x, y in _places(line))


def test_the_timed_window_is_shaded_within_the_chart() -> None:
    svg = _svg([(0, 0.1), (1, 0.1), (10, 0.1)], marked=(5.0, 500.0))
    [shade] = svg.findall(f"{SVG}rect")
    right = float(shade.attrib["x"]) + float(shade.attrib["width"])
    assert 170 < float(shade.attrib["x"]) < 190
    assert right <= 360


def test_a_chart_tells_its_peak_to_who_cannot_see_it() -> None:
    assert _svg([(0, 0.1), (9, 0.85)]).attrib["aria-label"] == "CPU: at most 85 % in 9 s"


def test_nothing_measured_is_said_and_not_drawn() -> None:
    for points in ([], [(0.0, None)]):
        text = str(draw(Chart("CPU", {"rank 0": points}, percent), gap_s=1.5))
        assert "Not measured" in text
        assert "<svg" not in text


def test_all_zero_is_a_line_at_the_bottom() -> None:
    [line] = _svg([(0, 0.0), (1, 0.0)]).findall(f"{SVG}polyline")
    assert len({y for _, y in _places(line)}) == 1


def test_titles_are_escaped_and_styles_left_to_the_sheet() -> None:
    chart = Chart('<b title="x">', {"rank 0": [(0, 1.0), (1, 2.0)]}, byte_rate)
    text = str(draw(chart, gap_s=1.5))
    assert "<b" not in text
    assert not re.search(r"\bstyle=", text)
