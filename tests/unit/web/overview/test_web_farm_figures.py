"""The charts of the farm: what finished in each hour, and how a machine drifts."""

from __future__ import annotations

import datetime as dt

import pytest

from farm.charts.chart import Figure, ticks
from farm.store.agents.control_runs import AgentRun
from farm.store.dashboard import FinishedHour
from web.drawing.rendered import drawn, to_plotly
from web.overview.figures import drift_figure, latest_drift, throughput_figure

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def hour(hours_ago: int, succeeded: int, failed: int = 0) -> FinishedHour:
    return FinishedHour(hours_ago=hours_ago, succeeded_count=succeeded, failed_count=failed)


def run(
    token: int,
    control_s: float,
    *,
    ago_s: float = 60.0,
    neighbour_count: int = 1,
    kind: str | None = "kind",
) -> AgentRun:
    return AgentRun(
        token=token,
        at=NOW - dt.timedelta(seconds=ago_s),
        control_s=control_s,
        neighbour_count=neighbour_count,
        kind=kind,
    )


def values(figure: Figure | None) -> list[list[float]]:
    assert figure is not None
    return [[mark.y for mark in series.marks] for series in figure.series]


def test_one_hour_alone_is_no_chart() -> None:
    assert throughput_figure([]) is None
    assert throughput_figure([hour(0, 5)]) is None


def test_hours_are_drawn_in_the_order_of_time() -> None:
    figure = throughput_figure([hour(2, 3, 1), hour(1, 0), hour(0, 5)])
    assert figure is not None
    assert values(figure) == [[4.0, 0.0, 5.0], [1.0, 0.0, 0.0]]
    assert [mark.x for mark in figure.series[0].marks] == [-2.0, -1.0, 0.0]
    assert figure.summary == "from 0 to 5 in the last 3 hours, 5 in the last one"
    assert [figure.x.write(x) for x in (-2.0, -1.0, 0.0)] == ["2", "1", "now"]


def test_failures_have_a_line_only_where_there_are_any() -> None:
    assert len(values(throughput_figure([hour(1, 1), hour(0, 1)]))) == 1


@pytest.mark.parametrize("hour_count", [2, 8, 13, 24])
def test_the_axis_of_hours_ends_now(hour_count: int) -> None:
    figure = throughput_figure([hour(ago, ago) for ago in range(hour_count - 1, -1, -1)])
    assert figure is not None
    places = ticks(figure.x, [mark.x for mark in figure.marks])
    assert all(-hour_count < place <= 0 for place in places)
    assert len(places) >= 2
    axis = to_plotly(figure)["layout"]
    assert isinstance(axis, dict)
    assert axis["xaxis"]["range"] == pytest.approx([1.06 * (1 - hour_count), 0.0])


def test_a_run_is_drawn_against_the_median_of_those_like_it() -> None:
    runs = [run(n, 4.0) for n in range(4)] + [run(4, 4.8)]
    runs += [run(n, 2.0, neighbour_count=2) for n in (5, 6)]
    figure = drift_figure(runs, now=NOW)
    alone, beside = values(figure)
    assert alone == pytest.approx([0.0] * 4 + [0.2])
    assert beside == [0.0, 0.0]
    assert figure is not None
    assert [series.name for series in figure.series] == [
        "alone of its gang on the machine",
        "beside 1 of its gang",
    ]
    assert figure.summary == "7 runs from +0.0 % to +20.0 %"


def test_runs_on_earlier_hardware_are_compared_among_themselves() -> None:
    runs = [run(1, 5.0, kind="old"), run(2, 5.0, kind="old"), run(3, 1.0), run(4, 1.0)]
    figure = drift_figure(runs, now=NOW)
    assert values(figure) == [[0.0, 0.0], [0.0, 0.0]]
    assert figure is not None
    assert [series.name.endswith("other hardware") for series in figure.series] == [True, False]


def test_a_run_without_another_like_it_is_not_drawn() -> None:
    assert drift_figure([], now=NOW) is None
    assert drift_figure([run(1, 1.0), run(2, 1.0, neighbour_count=2)], now=NOW) is None


@pytest.mark.parametrize(
    ("ago_s", "title"),
    [(60.0, "minutes ago"), (7200.0, "hours ago"), (172_800.0, "days ago"), (9e6, "days ago")],
)
def test_the_past_is_told_in_a_unit_that_fits(ago_s: float, title: str) -> None:
    figure = drift_figure([run(1, 1.0, ago_s=ago_s), run(2, 1.1, ago_s=0.0)], now=NOW)
    assert figure is not None
    assert figure.x.title == title
    assert figure.series[0].marks[-1].x == 0.0
    assert drawn(figure).json


def test_the_last_run_is_held_against_those_like_it_before() -> None:
    runs = [run(n, 1.0 + n / 100) for n in range(6)]
    runs.insert(3, run(99, 7.0, neighbour_count=2))
    drift = latest_drift(runs)
    assert drift is not None
    assert drift.control_s == 1.05
    assert drift.past_s == (1.04, 1.03, 1.02, 1.01, 1.0)
    assert drift.ratio == pytest.approx(1.05 / 1.02)
    assert latest_drift([]) is None
