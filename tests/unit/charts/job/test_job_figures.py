"""The charts of an attempt: ranks, steps, the seconds they are drawn over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from farm.charts.figure_table import figure_table
from farm.charts.job.figures import rank_timelines
from farm.charts.job.steps import (
    StepPoint,
    phases,
    step_histogram,
    step_summary,
    step_timeline,
    steps_over,
    timed_steps,
)
from farm.charts.timelines import Shade, TimelineAxis, TimelineFigure, TimelineSeries, second_ticks
from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.series.sample_ranges import CHARTED, DISTURBANCES, RangeValues, RankRanges
from farm.store.series.step_ranges import StepSeries
from web.drawing.rendered import drawn, timeline_to_plotly

SHARE = TimelineAxis(title="CPU", top=1.0)


def _ranges(ticks: list[int], *, width: int = 1, **values: RangeValues) -> RankRanges:
    """Ranges of one rank that begin at these ticks; what is not given was not measured."""
    nothing: list[float | None] = [None] * len(ticks)
    return RankRanges(
        width_ticks=width,
        first_ticks=ticks,
        last_ticks=[tick + width - 1 for tick in ticks],
        lows={name: values.get(f"{name}_low", values.get(name, nothing)) for name in CHARTED},
        highs={name: values.get(name, nothing) for name in (*CHARTED, *DISTURBANCES)},
    )


def _point(begun_s: float, time_s: float = 1.0, *, count: int = 1, **changes: object) -> StepPoint:
    fields: dict[str, object] = {"step": int(begun_s), "kind": StepKind.TIMED, "longest_s": time_s}
    return StepPoint(
        begun_s=begun_s,
        step_time_s=time_s,
        step_count=count,
        **{**fields, **changes},  # type: ignore[arg-type] # as declared
    )


def _chunk(first: int, *times_s: float, kind: StepKind = StepKind.TIMED) -> StepTimes:
    return StepTimes(kind=kind, first_step=first, begun_s=float(first), times_s=times_s)


def _timeline(*lines: TimelineSeries, shades: tuple[Shade, ...] = ()) -> TimelineFigure:
    return TimelineFigure(
        key="cpu", title="CPU", summary="a lot", quantity=SHARE, lines=lines, shades=shades
    )


def _data(timeline: TimelineFigure) -> dict[str, object]:
    found: dict[str, object] = timeline_to_plotly(timeline)
    return found


def _charts(series: dict[int, RankRanges], *steps: StepPoint) -> dict[str, TimelineFigure]:
    return {chart.key: chart for chart in rank_timelines(series, steps, shades=())}


def test_a_range_is_drawn_by_its_least_and_its_most() -> None:
    one = _ranges([0, 10], width=10, cpu_ratio=[0.9, 0.8], cpu_ratio_low=[0.1, 0.2])
    [line] = _charts({0: one})["cpu-ratio"].lines
    assert line.points == [(0, 0.1), (9, 0.9), (10, 0.2), (19, 0.8)]


def test_a_missing_second_breaks_a_line_and_a_missing_value_too() -> None:
    one = _ranges([0, 1, 3, 4], cpu_ratio=[0.5, 0.5, 0.5, None])
    [line] = _charts({0: one})["cpu-ratio"].lines
    assert line.points == [(0, 0.5), (1, 0.5), (1, None), (3, 0.5), (4, None)]


def test_the_steps_are_laid_over_every_metric_and_over_no_disturbance() -> None:
    one = _ranges([0, 1], cpu_ratio=[0.5, 0.5], swap_bytes_per_s=[0.0, 5e6])
    charts = _charts({0: one}, _point(0.0), _point(1.0, 0.5))
    assert list(charts) == [
        "cpu-ratio",
        "resident-bytes",
        "net-rx-bytes",
        "net-tx-bytes",
        "swap-bytes",
    ]
    over, rank = charts["cpu-ratio"].lines
    assert (over.is_over, rank.is_over, rank.name) == (True, False, "rank 0")
    # Each step as a bar as long as it took.
    assert over.points == [
        (0.0, 1.0),
        (1.0, 1.0),
        (1.0, None),
        (1.0, 0.5),
        (1.5, 0.5),
        (1.5, None),
    ]
    assert [line.is_over for line in charts["swap-bytes"].lines] == [False]


@pytest.mark.parametrize(
    ("name", "harmless", "harmful"),
    [
        ("machine_steal_ratio", 0.02, 0.03),
        ("foreign_load_ratio", 0.10, 0.11),
        ("throttled_ratio", 0.01, 0.02),
        ("swap_bytes_per_s", 1e6, 2e6),
    ],
)
def test_a_disturbance_is_drawn_where_there_was_any(
    name: str, harmless: float, harmful: float
) -> None:
    low: dict[str, RangeValues] = {name: [harmless, None]}
    high: dict[str, RangeValues] = {name: [0.0, harmful]}
    quiet = {0: _ranges([0, 1], width=1, **low)}
    loud = {**quiet, 1: _ranges([0, 1], width=1, **high)}
    assert len(_charts(quiet)) == 4
    [found] = list(_charts(loud).values())[4:]
    assert [line.name for line in found.lines] == ["rank 0", "rank 1"]


def test_thinned_foreign_load_says_that_it_has_the_interrupts_in_it() -> None:
    def title(width: int) -> str:
        one = _ranges([0], width=width, foreign_load_ratio=[0.5])
        return _charts({0: one})["foreign-load-ratio"].title

    assert title(1) == "Used by other programs"
    assert title(2) == "Used by other programs and interrupts"


def test_many_ranks_have_colours_of_their_own_or_dashes() -> None:
    series = {rank: _ranges([0, 1], cpu_ratio=[0.1, 0.2]) for rank in range(12)}
    lines = _charts(series)["cpu-ratio"].lines
    assert len({(line.tone, line.is_dashed) for line in lines}) == 12


def test_steps_that_do_not_follow_each_other_are_not_joined() -> None:
    first = [_point(n / 100, 0.01) for n in range(200)]
    second = [_point(60 + n / 100, 0.01) for n in range(200)]
    [line] = steps_over([*first, *second])
    assert sum(value is None for _, value in line.points) == 1
    mixed = [_point(0.0, kind=StepKind.WARMUP), _point(1.0)]
    chart = step_timeline(mixed, timed_steps(StepSeries(chunks=[])), shades=())
    assert chart is not None
    assert chart.lines[0].points == [(0.0, 1.0), (1.0, None), (1.0, 1.0)]


def test_phases_are_those_of_the_steps_until_the_trainer_says_itself() -> None:
    points = [
        _point(0.0, kind=StepKind.WARMUP),
        _point(1.0, kind=StepKind.WARMUP),
        _point(3.0),
        _point(4.0, kind=StepKind.PARTIAL),
        _point(9.0, kind=StepKind.PROFILED),
    ]
    found = {one.kind: (one.begin_s, one.end_s) for one in phases(points, timed_window=None)}
    assert found == {"warmup": (0.0, 2.0), "timed": (3.0, 5.0), "profiled": (9.0, 10.0)}
    ends_s = {one.kind: one.end_s for one in phases(points, timed_window=(3.0, 6.0))}
    assert ends_s["timed"] == 6.0


def test_far_steps_are_marked_counted_and_listed() -> None:
    times_s = [0.1] * 50
    times_s[20] = 3.0
    series = StepSeries(chunks=[_chunk(0, 9.0, kind=StepKind.WARMUP), _chunk(1, *times_s)])
    timed = timed_steps(series)
    summary, chart = step_summary(timed), step_histogram(timed)
    assert summary is not None
    assert (summary.timed_count, summary.read_count, summary.far_count) == (50, 50, 1)
    [longest] = summary.longest
    assert longest.step == 21
    assert longest.begun_s == pytest.approx(3.0)
    assert summary.quantiles["longest"] == 3.0  # the warm-up is none of them
    assert summary.quantiles["median"] == 0.1
    assert chart is not None
    assert [(one.count, one.is_far) for one in chart.bins] == [(49, False), (1, True)]
    line = step_timeline([_point(1.0)], timed, shades=())
    assert line is not None
    assert [one.name for one in line.lines] == ["step time", "far from the median"]
    [(second, value)] = line.lines[1].points
    assert second == pytest.approx(3.0)
    assert value == 3.0


def test_no_step_is_no_chart() -> None:
    timed = timed_steps(StepSeries(chunks=[]))
    assert step_summary(timed) is None
    assert step_histogram(timed) is None
    assert step_timeline([], timed, shades=()) is None
    assert rank_timelines({}, [], shades=()) == []


def test_the_table_has_the_least_and_the_most_of_every_line() -> None:
    points = [(0.0, 0.1), (1.0, 0.2), (1.0, None), (3.0, 0.3), (9.0, None), (70.0, 2.0)]
    empty = TimelineSeries(name="rank 1", points=[(0.0, None)])
    table = figure_table(_timeline(TimelineSeries(name="rank 0", points=points), empty))
    assert table.titles == ("", "From", "To", "Least", "Most")
    [row] = table.rows
    assert row[:3] == ("rank 0", "0 s", "1 min 10 s")


def test_nothing_measured_is_not_drawn() -> None:
    shown = drawn(_timeline(TimelineSeries(name="rank 0", points=[(0.0, None)])))
    assert not shown.json
    assert not drawn(_timeline()).json


def test_names_are_text_to_a_browser_and_to_plotly() -> None:
    evil = "</script><b>x</b>"
    timeline = _timeline(TimelineSeries(name=evil, points=[(0.0, 0.5), (1.0, 0.5)]))
    shown = drawn(timeline)
    assert "<" not in str(shown.json)
    assert "&lt;b&gt;" in json.loads(str(shown.json))["data"][0]["name"]


def test_plotly_gets_gaps_shades_and_a_second_axis() -> None:
    shade = Shade(name="timed", kind="timed", begin_s=0.5, end_s=1.0)
    points = [(0, 0.123456), (0, None), (2, 1234567.0)]
    lines = (
        TimelineSeries(name="step", points=[(0.0, 0.25)], is_over=True),
        TimelineSeries(name="rank 0", points=points, style=7),
    )
    timeline = TimelineFigure(
        key="x", title="x", summary="", quantity=SHARE, over=SHARE, lines=lines, shades=(shade,)
    )
    data: Any = timeline_to_plotly(timeline)
    over, rank = data["data"]
    assert (over["yaxis"], rank["yaxis"]) == ("y2", "y")
    assert rank["y"] == [0.1235, None, 1235000]
    assert rank["line"]["dash"] == "dash"
    assert data["layout"]["yaxis2"]["overlaying"] == "y"
    assert data["shades"] == [{"kind": "timed", "x0": 0.5, "x1": 1.0}]


@pytest.mark.parametrize("end_s", [1.0, 9.0, 59.0, 100.0, 3599.0, 86_400.0, 604_800.0])
def test_seconds_are_written_at_round_places(end_s: float) -> None:
    found = second_ticks(0.0, end_s)
    assert 2 <= len(found) <= 6
    assert {second % 3600 for second in found} == {0} or end_s < 8 * 3600
    assert found == sorted(found)
    assert found[-1] <= end_s


def test_a_zoom_stays_while_new_values_come_since_no_range_is_given_anew() -> None:
    def axes(end_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
        quantity = TimelineAxis(title="Received", d3_format=".3~s", suffix="B/s")
        lines = (TimelineSeries(name="rank 0", points=[(0.0, 1.0), (end_s, end_s)]),)
        chart = TimelineFigure(key="x", title="x", summary="", quantity=quantity, lines=lines)
        layout: Any = timeline_to_plotly(chart)["layout"]
        return layout["xaxis"], layout["yaxis"]

    assert axes(100.0) == axes(200.0)
    assert axes(200.0)[0]["ticksuffix"] == " s"
    assert axes(4000.0)[0]["ticksuffix"] == " min"
    assert axes(86_400.0)[0]["ticksuffix"] == " h"
