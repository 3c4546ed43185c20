import re
from typing import Any

from farm.figures.bars import Bars, BarSeries
from farm.figures.chart import ChartAxis, Mark
from web.drawing.bars_svg import bars_to_plotly, draw_bars
from web.drawing.figure_svg import drawn
from web.drawing.svg_file import figure_file


def mark(place: int, y: float, *, low: float | None = None, high: float | None = None) -> Mark:
    return Mark(x=float(place), y=y, low=low, high=high, note=f"{place}: {y:g}")


def bars(*, groups: tuple[str, str] = ("ring", "<b>central</b>")) -> Bars:
    return Bars(
        title="Step time by world size",
        summary="from 1 to 4",
        x="Strategy",
        y=ChartAxis(title="Step time"),
        groups=groups,
        series=[
            BarSeries(name="2 ranks", marks=[mark(0, 1.0, low=0.8, high=1.4), mark(1, 2.0)]),
            BarSeries(name="4 ranks", marks=[None, mark(1, 4.0)]),
        ],
    )


def rectangles(svg: str) -> list[tuple[str, float, float, float]]:
    """Return of each bar its series, its top, its width and its height."""
    found = re.findall(
        r'<rect class="dot (s\d)" x="[\d.]+" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg
    )
    return [(series, float(y), float(w), float(h)) for series, y, w, h in found]


def test_bars_are_as_long_as_their_values_and_as_thick_as_each_other() -> None:
    one, two, four = rectangles(draw_bars(bars()))
    assert [one[0], two[0], four[0]] == ["s0", "s0", "s1"]
    assert [round(bar[2] / one[2], 1) for bar in (two, four)] == [2.0, 4.0]
    assert one[3] == two[3] == four[3]


def test_a_group_leaves_no_room_for_a_bar_that_it_does_not_have() -> None:
    traces: Any = bars_to_plotly(bars())["data"]
    first, second, third = (place for trace in traces for place in trace["y"])
    assert first == 0.0
    assert (second + third) / 2 == 1.0


def test_what_users_have_named_is_no_markup() -> None:
    assert "<b>" not in draw_bars(bars())
    assert "&lt;b&gt;central" in draw_bars(bars())
    layout = bars_to_plotly(bars())["layout"]
    assert isinstance(layout, dict)
    assert layout["yaxis"]["ticktext"] == ["ring", "&lt;b&gt;central&lt;/b&gt;"]


def test_long_names_stand_above_their_bars_in_full() -> None:
    long = "ps_async, servers 2, collocated with workers"
    svg = draw_bars(bars(groups=("single", long)))
    assert f">{long}</text>" in svg
    (before, *_) = rectangles(draw_bars(bars()))
    (after, *_) = rectangles(svg)
    assert after[1] > before[1], "there is a line for the name"
    assert after[2] > before[2], "and all the width for the bars"


def test_an_interval_is_drawn_upon_its_bar_alone() -> None:
    assert draw_bars(bars()).count('class="whisker upon"') == 1


def test_its_key_and_its_file_name_every_series() -> None:
    shown = drawn(bars())
    assert shown.key == [("2 ranks", 0), ("4 ranks", 1)]
    file = figure_file(bars())
    assert all(name in file for name in ("2 ranks", "4 ranks", "Step time by world size"))
