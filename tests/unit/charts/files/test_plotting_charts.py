"""Charts on paper: what is drawn where, and by what series are told apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra plot")

from matplotlib.container import ErrorbarContainer

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files import charts
from farm.charts.files.style import FORMS, file_of, look, tick_text
from farm.text.display import byte_count, duration

# Matplotlib's own types are wider than what is looked at here.
draw_charts: Any = charts.draw_charts

TIME = ChartAxis(title="Step time", write=duration)
SIZE = ChartAxis(title="World size", is_counted=True)


def chart(
    *series: ChartSeries, title: str = "a chart", x: ChartAxis = SIZE, y: ChartAxis = TIME
) -> Figure:
    return Figure(title=title, summary="", x=x, y=y, series=series)


def line(name: str, *heights: float, **how: Any) -> ChartSeries:
    marks = [Mark(x=n, y=y, low=0.9 * y, high=1.2 * y) for n, y in enumerate(heights, start=1)]
    return ChartSeries(name=name, marks=marks, **how)


def keys(drawn: Any) -> list[list[str]]:
    """The names in the key of the figure, and in those of its panels."""
    found = [*drawn.legends, *(ax.get_legend() for ax in drawn.axes)]
    return [[text.get_text() for text in one.get_texts()] for one in found if one is not None]


def ends_of_intervals(ax: Any) -> list[tuple[float, float]]:
    bars = [one for one in ax.containers if isinstance(one, ErrorbarContainer)]
    segments = [s for bar in bars for part in bar.lines[2] for s in part.get_segments()]
    return [(low[1], high[1]) for low, high in segments]


def test_no_two_series_of_a_figure_look_alike() -> None:
    looks = [look(n) for n in range(49)]
    assert len({(one["color"], one["marker"]) for one in looks}) == 49
    for one, other in itertools.pairwise(looks[:7]):
        assert not set(map(str, one.values())) & set(map(str, other.values()))


def test_an_interval_is_drawn_where_it_is_though_the_mark_lies_outside_of_it() -> None:
    odd = ChartSeries(name="odd", marks=[Mark(x=1, y=5.0, low=1.0, high=3.0), Mark(x=2, y=1.0)])
    [ax] = draw_charts([chart(odd)]).axes
    assert ends_of_intervals(ax)[0] == pytest.approx((1.0, 3.0))


def test_panels_with_the_same_series_share_one_key_and_others_have_their_own() -> None:
    same = [chart(line("a", 1, 2), line("b", 2, 3)), chart(line("b", 1, 2), line("a", 2, 3))]
    assert keys(draw_charts(same)) == [["a", "b"]]
    assert keys(draw_charts(same, shares_legend=False)) == [["a", "b"], ["b", "a"]]
    other = [*same, chart(line("c", 1, 2), line("d", 1, 2))]
    assert keys(draw_charts(other)) == [["a", "b"], ["b", "a"], ["c", "d"]]


def test_a_name_has_one_look_in_all_panels() -> None:
    drawn = draw_charts([chart(line("a", 1), line("b", 1)), chart(line("b", 1), line("a", 1))])
    colours = [
        {text.get_text(): handle.get_color() for text, handle in _pairs(ax)}
        for ax in draw_charts(
            [chart(line("a", 1), line("b", 1)), chart(line("b", 1), line("a", 1))],
            shares_legend=False,
        ).axes
    ]
    assert colours[0] == colours[1]
    assert len(drawn.axes) == 2


def _pairs(ax: Any) -> Sequence[tuple[Any, Any]]:
    legend = ax.get_legend()
    return list(zip(legend.get_texts(), legend.get_lines(), strict=True))


def test_what_was_not_measured_is_hollow() -> None:
    marks = [Mark(x=1, y=1.0), Mark(x=2, y=2.0, is_solid=False)]
    [ax] = draw_charts([chart(ChartSeries(name="a", marks=marks))]).axes
    faces = {
        tuple(one.get_xdata()): one.get_markerfacecolor()
        for one in ax.lines
        if one.get_marker() == "s"
    }
    assert faces[(1,)] != "white"
    assert faces[(2,)] == "white"


def test_a_line_without_dots_has_no_marker_and_dots_unjoined_no_line() -> None:
    fit = line("fit", 1, 2, has_dots=False)
    runs = line("runs", 1, 2, is_joined=False)
    [ax] = draw_charts([chart(fit, runs)]).axes
    drawn = [(one.get_linestyle(), one.get_marker()) for one in ax.lines if len(one.get_xdata())]
    assert ("-", "None") in drawn
    assert all(style == "None" for style, marker in drawn if marker == "o")


def test_marks_at_one_place_stand_a_little_apart_and_never_near_the_next_place() -> None:
    [ax] = draw_charts([chart(*(line(name, 1, 2, 3) for name in "abcdef"))]).axes
    places = sorted(x for one in ax.lines for x in one.get_xdata() if one.get_marker() in "so^DvP")
    around_1 = [x for x in places if x < 1.5]
    assert len(set(around_1)) == 6
    assert max(around_1) - min(around_1) < 0.3


def test_axes_are_written_in_units_without_useless_digits() -> None:
    assert tick_text(TIME, 0.02) == "20 ms"
    assert tick_text(TIME, 2.5) == "2.5 s"
    assert tick_text(TIME, 120.0) == "2 min"
    assert tick_text(ChartAxis(title="", write=byte_count), 5e6) == "5 MB"
    assert tick_text(SIZE, 100.0) == "100"
    assert tick_text(SIZE, 1.25) == "1.25"


def test_a_logarithmic_axis_names_powers() -> None:
    wide = ChartAxis(title="Batch", is_log=True)
    [ax] = draw_charts([chart(line("a", 1, 2, 300), x=wide)]).axes
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2"]


@pytest.mark.parametrize("form", FORMS)
def test_equal_figures_are_equal_files(form: str) -> None:
    contents = [file_of(draw_charts([chart(line("a", 1, 2))]), form) for _ in range(2)]
    assert contents[0] == contents[1]
