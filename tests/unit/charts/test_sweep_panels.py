"""What is drawn of a sweep beyond one chart: panels of lines, grouped bars, the Pareto front."""

from __future__ import annotations

from typing import Any

from farm.cells.choice import CELL_METRICS, read_choice
from farm.cells.table import SweepTable
from farm.charts.chart import Bars, Figure
from farm.charts.metric_lines import MOST_PANELS, line_panels
from farm.charts.sweep_figures import MOST_GROUPS, bars_of, cost_against_time
from tests.stored.sweep_cells import cell, table

STEP_TIME, THROUGHPUT = CELL_METRICS[0], CELL_METRICS[1]

GRID = table(
    *(cell(0.4, 0.4, global_batch_size=batch) for batch in (64, 128)),
    *(
        cell(0.1 * n + d, 0.11 * n + d, world_size=n, global_batch_size=batch, one_way_delay_s=d)
        for batch in (64, 128)
        for n in (2, 4)
        for d in (0.0, 0.01, 0.02, 0.03)
    ),
)


def _panels(of: SweepTable, **query: str) -> dict[str, list[str]]:
    found = line_panels(of, read_choice(query, of), STEP_TIME)
    return {figure.title: [one.name for one in figure.series] for figure in found}


def _bars(of: SweepTable, **query: str) -> Bars:
    found = bars_of(of, read_choice(query, of))
    assert found is not None
    return found


def _heights(bars: Bars) -> dict[str, dict[str, float]]:
    return {
        one.name: {bars.groups[i]: mark.y for i, mark in enumerate(one.marks) if mark is not None}
        for one in bars.series
    }


def test_what_the_lines_are_told_apart_by_makes_panels_of_the_rest() -> None:
    delays = ["delay 0 s", "delay 10.0 ms", "delay 20.0 ms", "delay 30.0 ms"]
    assert _panels(GRID, along="world_size", by="one_way_delay_ms") == {
        "batch 64": delays,
        "batch 128": delays,
    }


def test_too_many_lines_for_one_panel_are_divided_without_being_asked() -> None:
    assert len(_panels(GRID, along="world_size")) == 2
    assert list(_panels(GRID, along="world_size", at_one_way_delay_ms="10")) == [
        "Step time against world size"
    ]


def test_of_too_many_panels_those_with_most_cells_are_drawn_and_it_is_said() -> None:
    delays = table(
        *(
            cell(0.1, world_size=n, global_batch_size=batch, one_way_delay_s=d)
            for batch in range(64, 64 + MOST_PANELS + 3)
            for n in (2, 4)
            for d in (0.0, 0.1)
        )
    )
    found = line_panels(delays, read_choice({"by": "one_way_delay_ms"}, delays), STEP_TIME)
    assert len(found) == MOST_PANELS
    assert f"{MOST_PANELS} of {MOST_PANELS + 3} panels" in found[0].summary


def test_a_throughput_is_as_uncertain_as_the_time_turned_round() -> None:
    of = table(
        *(cell(*times, world_size=n, throughput_examples_per_s=100.0) for n, times in TIMES.items())
    )
    [figure] = line_panels(of, read_choice({}, of), THROUGHPUT)
    [times] = line_panels(of, read_choice({}, of), STEP_TIME)
    for rate, time in zip(figure.marks, times.marks, strict=True):
        assert rate.low is not None
        assert time.high is not None
        assert abs(rate.low - 100.0 * time.y / time.high) < 1e-6
        assert rate.low < 100.0


TIMES = {2: (0.19, 0.2, 0.21), 4: (0.11, 0.12, 0.13)}


def test_bars_that_differ_in_one_thing_stand_side_by_side() -> None:
    of = table(
        *(
            cell(0.1 * n + (s == "ps_sync"), world_size=n, strategy=s)
            for n in (2, 4)
            for s in ("mwms_ring", "ps_sync")
        )
    )
    bars = _bars(of)
    assert bars.title == "Step time by strategy"
    assert bars.x == "World size"
    assert _heights(bars) == {"mwms_ring": {"2": 0.2, "4": 0.4}, "ps_sync": {"2": 1.2, "4": 1.4}}
    assert list(_heights(_bars(of, by="world_size"))) == ["world size 2", "world size 4"]


def test_a_group_is_named_by_what_does_not_go_without_saying() -> None:
    of = table(
        cell(0.1),
        cell(0.2, world_size=2),
        cell(0.3, world_size=2, strategy="ps_sync", server_count=1, server_placement="collocated"),
    )
    assert sorted(_bars(of, by="world_size").groups) == [
        "mwms_ring",
        "ps_sync, servers 1, collocated",
    ]


def test_bars_have_the_chosen_metric_and_what_is_held_is_no_part_of_a_name() -> None:
    of = table(*(cell(0.1, world_size=n, throughput_examples_per_s=10.0 * n) for n in (2, 4)))
    assert _heights(_bars(of, metric="throughput")) == {
        "world size 2": {"all": 20.0},
        "world size 4": {"all": 40.0},
    }
    bars = _bars(GRID, at_one_way_delay_ms="10", by="world_size")
    assert not any("delay" in name for name in bars.groups)


def test_one_machine_stands_beside_the_gangs_that_do_the_same_work() -> None:
    bars = _bars(GRID, at_one_way_delay_ms="0", by="world_size")
    assert bars.groups == ["64", "128"]
    assert _heights(bars)["world size 1"] == {"64": 0.4, "128": 0.4}


def test_of_too_many_groups_the_rest_is_said_to_be_left_out() -> None:
    many = table(
        *(
            cell(0.1, world_size=n, global_batch_size=batch)
            for batch in range(64, 64 + MOST_GROUPS + 2)
            for n in (2, 4)
        )
    )
    bars = _bars(many, by="world_size")
    assert len(bars.groups) == MOST_GROUPS
    assert bars.summary.endswith("; 4 more cells are left out")


def test_one_cell_alone_is_no_figure_of_bars() -> None:
    of = table(cell(0.1), cell(world_size=2))
    assert bars_of(of, read_choice({}, of)) is None


def _front(*cells: Any) -> tuple[Figure, dict[str, list[tuple[float, float]]]]:
    of = table(*cells)
    figure = cost_against_time(of, read_choice({}, of))
    assert figure is not None
    lines = [one for one in figure.series if not one.has_dots]
    return figure, {one.name: [(m.x, m.y) for m in one.marks] for one in lines}


def _costly(cost: float, epoch_s: float, **what: Any) -> Any:
    return cell(0.1, cost_usd=cost, time_per_epoch_s=epoch_s, **what)


def test_on_the_front_is_what_no_other_beats_in_both() -> None:
    figure, fronts = _front(
        _costly(1.0, 100.0),
        _costly(2.0, 60.0, world_size=2),
        _costly(2.5, 60.0, world_size=3),  # as fast, and costs more
        _costly(3.0, 90.0, world_size=4),
        _costly(4.0, 30.0, world_size=8),
    )
    assert list(fronts.values()) == [[(1.0, 100.0), (2.0, 60.0), (4.0, 30.0)]]
    solid = {mark.x: mark.is_solid for one in figure.series if one.has_dots for mark in one.marks}
    assert solid == {1.0: True, 2.0: True, 2.5: False, 3.0: False, 4.0: True}
    assert "3 of 5 cells are on the Pareto front" in figure.summary


def test_what_trains_something_else_has_a_front_of_its_own() -> None:
    _, fronts = _front(_costly(1.0, 100.0), _costly(9.0, 900.0, model="small_cnn", world_size=2))
    assert list(fronts.values()) == [[(1.0, 100.0)], [(9.0, 900.0)]]
    assert all(" on digits" in name for name in fronts)


def test_without_prices_machine_time_is_the_cost() -> None:
    figure, fronts = _front(
        cell(0.1, time_per_epoch_s=10.0), cell(0.1, time_per_epoch_s=8.0, world_size=2)
    )
    assert figure.x.title == "Machine time of an epoch"
    assert list(fronts.values()) == [[(10.0, 10.0), (16.0, 8.0)]]


def test_one_machine_is_a_line_in_the_panels_of_the_gangs_that_do_its_work() -> None:
    names = ["world size 1", "world size 2", "world size 4"]
    assert _panels(GRID, along="one_way_delay_ms", by="world_size") == {
        "batch 64": names,
        "batch 128": names,
    }


def test_one_machine_alone_is_one_bar_and_not_one_for_each_network() -> None:
    bars = _bars(GRID, by="one_way_delay_ms")
    marks = [mark.x for mark in bars.marks]
    alone = [i for i, name in enumerate(bars.groups) if "world size 1" in name]
    assert [marks.count(i) for i in alone] == [1, 1]
