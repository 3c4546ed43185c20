"""Bars, maps and series on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

pytest.importorskip("matplotlib", reason="needs the extra plot")

from farm.cells.choice import read_choice
from farm.cells.table import CellState
from farm.charts.chart import Bars, BarSeries, ChartAxis, Mark
from farm.charts.files import bars as bar_drawing
from farm.charts.files import heat_maps, timelines
from farm.charts.files.style import file_of
from farm.charts.heat_map import heat_map
from farm.charts.timelines import Shade, TimelineAxis, TimelineFigure, TimelineSeries
from farm.text.display import duration
from tests.stored.sweep_cells import cell, table

# Matplotlib's own types are wider than what is looked at here.
draw_bars: Any = bar_drawing.draw_bars
draw_map: Any = heat_maps.draw_map
draw_timelines: Any = timelines.draw_timelines


def bars(*series: tuple[str, Sequence[float | None]], groups: Sequence[str]) -> Bars:
    return Bars(
        title="Step time by strategy",
        summary="",
        x="World size",
        y=ChartAxis(title="Step time", write=duration),
        groups=groups,
        series=[
            BarSeries(
                name=name,
                marks=[
                    None if y is None else Mark(x=i, y=y, low=y / 2, high=2 * y)
                    for i, y in enumerate(heights)
                ],
            )
            for name, heights in series
        ],
    )


def texts(ax: Any) -> list[str]:
    return [one.get_text() for one in ax.texts]


TWO = bars(("ring", [1.0, 2.0]), ("server", [None, 3.0]), groups=["1", "2"])


def test_bars_of_a_group_stand_beside_each_other_around_its_name() -> None:
    [ax] = draw_bars([TWO]).axes
    middles = {patch.get_height(): patch.get_x() + patch.get_width() / 2 for patch in ax.patches}
    assert middles[1.0] == pytest.approx(0.0)  # alone, it leaves no room for what is not there
    assert middles[2.0] + middles[3.0] == pytest.approx(2.0)
    assert middles[2.0] < middles[3.0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2"]


def test_bars_are_told_apart_by_hatch_and_by_colour() -> None:
    [ax] = draw_bars([TWO]).axes
    hatches = {patch.get_height(): patch.get_hatch() for patch in ax.patches}
    assert hatches[1.0] == hatches[2.0] != hatches[3.0]
    colours = {patch.get_height(): patch.get_facecolor() for patch in ax.patches}
    assert colours[1.0] == colours[2.0] != colours[3.0]


def test_bars_with_long_names_lie_with_the_first_at_the_top() -> None:
    long = bars(("ring", [1.0, 2.0]), groups=["parameter server " * 3, "ring " * 9])
    [ax] = draw_bars([long]).axes
    assert [patch.get_width() for patch in ax.patches] == [1.0, 2.0]
    top, bottom = ax.transData.transform([(0, 0), (0, 1)])
    assert top[1] > bottom[1]


def test_bars_of_panels_beside_each_other_are_named_once_where_they_lie() -> None:
    first, second = draw_bars([TWO, TWO], columns=2, is_lying=True).axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["1", "2"]
    assert [text.get_text() for text in second.get_yticklabels()] == ["", ""]


MAPPED = table(
    *(cell(0.1 * n, world_size=n, global_batch_size=64) for n in (2, 4)),
    cell(0.3, world_size=2, global_batch_size=128),
    cell(state=CellState.FAILED, world_size=8, global_batch_size=64, failed_job_ids=(3,)),
)


def test_every_field_of_a_map_has_its_number_or_says_why_not() -> None:
    shown = heat_map(MAPPED, read_choice(MultiDict(), MAPPED))
    assert shown is not None
    [ax] = draw_map(shown).axes
    assert sorted(texts(ax)) == sorted(field.text for row in shown.fields for field in row)
    assert "200 ms" in texts(ax)


def test_rows_without_a_cell_at_what_is_held_are_left_out_and_named() -> None:
    apart = table(
        *(cell(0.1 * n, world_size=n, strategy="mwms_ring") for n in (2, 4)),
        *(cell(0.3, world_size=2, strategy="ps_sync", server_count=n) for n in (1, 2)),
    )
    shown = heat_map(apart, read_choice(MultiDict({"x": "world_size", "y": "strategy"}), apart))
    assert shown is not None
    [ax] = draw_map(shown).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["mwms_ring"]
    assert "ps_sync: no cell at what is held" in " ".join(ax.get_title(loc="left").split())


def series(*, over: bool = True) -> TimelineFigure:
    points = [(0, 1.0), (1, None), (2, 3.0)]
    steps = TimelineSeries(name="step", points=[(0, 0.1), (0.1, 0.1), (0.1, None)], is_over=True)
    return TimelineFigure(
        key="role-cpu",
        title="CPU by role",
        summary="",
        quantity=TimelineAxis(title="CPU"),
        lines=[*([steps] if over else []), TimelineSeries(name="servers, mean", points=points)],
        over=TimelineAxis(title="Step time", write=duration) if over else None,
        shades=[Shade(name="timed", kind="timed", begin_s=0.5, end_s=1.5)],
    )


def test_a_gap_stays_a_gap_and_the_steps_have_the_axis_at_the_right() -> None:
    drawn = draw_timelines([series()], title="Job 7")
    left, right = drawn.axes
    [line] = left.lines
    assert [value == value for value in line.get_ydata()] == [True, False, True]
    assert right.get_ylabel() == "Step time"
    assert [tuple(one.get_xdata()) for one in right.lines] == [(0, 0.1, 0.1)]
    [key] = drawn.legends
    assert key.get_title().get_text() == "Job 7"
    assert [text.get_text() for text in key.get_texts()] == ["servers, mean", "step", "timed"]


def test_shades_are_behind_all_lines_of_both_axes() -> None:
    left, right = draw_timelines([series()]).axes
    assert [len(ax.patches) for ax in (left, right)] == [0, 1]
    assert left.get_zorder() > right.get_zorder()
    [alone] = draw_timelines([series(over=False)]).axes
    assert len(alone.patches) == 1


def test_stacked_series_share_their_seconds_and_equal_ones_are_equal_files() -> None:
    contents = [file_of(draw_timelines([series(), series(over=False)]), "svg") for _ in range(2)]
    assert contents[0] == contents[1]
    drawn = draw_timelines([series(), series(over=False)])
    assert len({ax.get_xlim() for ax in drawn.axes}) == 1
