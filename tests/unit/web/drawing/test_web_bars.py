from typing import Any

import pytest

from farm.charts.chart import Bars, BarSeries, ChartAxis, Mark
from farm.charts.figure_table import figure_table
from farm.text.display import MISSING
from web.drawing.rendered import bars_to_plotly


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


def traces(shown: Bars) -> Any:
    return bars_to_plotly(shown)["data"]


def test_bars_are_as_long_as_their_values_and_as_thick_as_each_other() -> None:
    both, four = traces(bars())
    assert (both["x"], four["x"]) == ([1.0, 2.0], [4.0])
    assert both["width"] == [*four["width"], *four["width"]]
    assert (both["meta"], four["meta"]) == ({"style": 0}, {"style": 1})


def test_a_group_leaves_no_room_for_a_bar_that_it_does_not_have() -> None:
    first, second, third = (place for trace in traces(bars()) for place in trace["y"])
    assert first == 0.0
    assert (second + third) / 2 == 1.0


def test_what_users_have_named_is_no_markup() -> None:
    layout = bars_to_plotly(bars())["layout"]
    assert isinstance(layout, dict)
    assert layout["yaxis"]["ticktext"] == ["ring", "&lt;b&gt;central&lt;/b&gt;"]


def test_an_interval_is_drawn_upon_its_bar_alone() -> None:
    both, four = traces(bars())
    assert both["error_x"]["array"] == [pytest.approx(0.4), None]
    assert four["error_x"]["array"] == [None]


def test_its_table_names_every_bar() -> None:
    table = figure_table(bars())
    assert table.titles == ("Strategy", "", "Step time", "Interval")
    assert table.rows == (
        ("ring", "2 ranks", "1.00", "0.80 to 1.40"),
        ("<b>central</b>", "2 ranks", "2.00", MISSING),
        ("<b>central</b>", "4 ranks", "4.00", MISSING),
    )
