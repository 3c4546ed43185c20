"""The charts of a sweep: which lines they have, with which intervals, and as files."""

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

from farm.cells.choice import in_order, read_choice
from farm.cells.table import SweepTable
from farm.charts.chart import Figure
from farm.charts.metric_lines import MOST_LINES, MOST_PLACES
from farm.charts.sweep_figures import figures_of
from tests.stored.sweep_cells import cell, table


def _figures(of: SweepTable, **query: str) -> dict[str, Figure]:
    found = figures_of(of, read_choice(MultiDict(query), of))
    return {name: one for name, one in found.items() if isinstance(one, Figure)}


def _lines(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    return {one.name: [(m.x, m.y) for m in one.marks] for one in figure.series}


SCALING = table(
    *(cell(0.4 * batch / 64, 0.4, 0.4, global_batch_size=batch) for batch in (64, 128)),
    *(
        cell(
            *(0.4 * batch / 64 / n * f for f in (0.99, 1.0, 1.01)),
            world_size=n,
            global_batch_size=batch,
            efficiency_ratio=0.9,
            time_per_epoch_s=10.0,
            cost_usd=0.1 * n,
        )
        for batch in (64, 128)
        for n in (2, 4)
    ),
)


def test_lines_of_world_sizes_begin_with_one_machine() -> None:
    lines = _lines(_figures(SCALING)["time"])
    assert list(lines) == ["batch 64", "batch 128"]
    assert [x for x, _ in lines["batch 64"]] == [1, 2, 4]
    assert lines["batch 64"][0] == (1, 0.4)


def test_lines_of_settings_that_one_rank_lacks_begin_with_it_too() -> None:
    averaged = table(
        cell(0.4),
        *(
            cell(0.4 / n, world_size=n, strategy="local_sgd", steps_between_averages=steps)
            for steps in (8, 32)
            for n in (2, 4)
        ),
    )
    lines = _lines(_figures(averaged)["time"])
    assert [line[0] for line in lines.values()] == [(1, 0.4), (1, 0.4)]
    assert [[x for x, _ in line] for line in lines.values()] == [[1, 2, 4], [1, 2, 4]]


def test_a_machine_with_several_ranks_is_part_of_its_own_line_alone() -> None:
    several = table(
        cell(0.4),
        *(
            cell(0.4 / n, world_size=n, strategy="mwms_ring", ranks_per_agent=ranks)
            for ranks, n in ((2, 2), (2, 6), (4, 4), (4, 8))
        ),
    )
    lines = _lines(_figures(several)["time"])
    assert sorted([x for x, _ in line] for line in lines.values()) == [[1, 2, 6], [1, 4, 8]]


def test_along_the_batch_one_machine_is_a_line_of_its_own() -> None:
    lines = _lines(_figures(SCALING, along="global_batch_size")["time"])
    assert list(lines) == [
        "world size 1, single",
        "world size 2, mwms_ring",
        "world size 4, mwms_ring",
    ]


def test_what_is_held_is_left_out_of_the_lines() -> None:
    lines = _lines(_figures(SCALING, at_global_batch_size="128")["time"])
    assert list(lines) == ["this sweep"]
    assert [x for x, _ in lines["this sweep"]] == [1, 2, 4]


def test_marks_have_the_interval_of_their_repetitions() -> None:
    [_, mark, _] = _figures(SCALING, at_global_batch_size="64")["time"].series[0].marks
    assert mark.low is not None
    assert mark.high is not None
    assert mark.low < 0.2 < mark.high
    assert "3 repetitions" in mark.note
    assert "(95 %:" in mark.note
    few = table(cell(0.1), cell(0.1, global_batch_size=128))
    assert [m.low for m in _figures(few)["time"].marks] == [None, None]


def test_efficiency_is_as_uncertain_as_the_time() -> None:
    figure = _figures(SCALING, at_global_batch_size="64")["efficiency"]
    mark = figure.marks[0]
    time = _figures(SCALING, at_global_batch_size="64")["time"].series[0].marks[1]
    assert time.low is not None
    assert mark.high == pytest.approx(0.9 * time.y / time.low)


def test_a_flat_line_of_one_machine_stands_at_every_delay() -> None:
    delays = table(
        cell(0.3),
        *(cell(0.2 + d, world_size=2, one_way_delay_s=d) for d in (0.0, 0.01, 0.02)),
    )
    lines = _lines(_figures(delays, along="one_way_delay_ms")["time"])
    assert lines["world size 1, single"] == [(0.0, 0.3), (0.01, 0.3), (0.02, 0.3)]
    assert [x for x, _ in lines["world size 2, mwms_ring"]] == [0.0, 0.01, 0.02]


def test_a_line_of_delays_begins_without_an_emulator() -> None:
    gang: dict[str, Any] = {"world_size": 2}
    delays = [
        cell(0.2, **gang),
        *(cell(0.2 + d, **gang, one_way_delay_s=d, emulator="tcp_proxy") for d in (0.01, 0.02)),
    ]
    figure = _figures(table(*delays), along="one_way_delay_ms")["time"]
    [line] = _lines(figure).values()
    assert [x for x, _ in line] == [0.0, 0.01, 0.02]
    other = cell(0.3, **gang, one_way_delay_s=0.01, emulator="tc_netem")
    figure = _figures(table(*delays, other), along="one_way_delay_ms")["time"]
    assert _lines(figure).keys() == {"emulator any", "tcp_proxy", "tc_netem"}


def test_only_so_many_lines_are_drawn_and_it_is_said() -> None:
    many = table(
        *(
            cell(0.1 * n, world_size=n, global_batch_size=batch)
            for batch in range(64, 64 + MOST_LINES + 4)
            for n in (2, 4)
        )
    )
    figure = _figures(many)["time"]
    assert len(figure.series) == MOST_LINES
    assert f"the {MOST_LINES} lines with most cells, of {MOST_LINES + 4}" in figure.summary


def test_only_so_many_places_are_on_a_line_and_it_is_said() -> None:
    many = table(*(cell(0.1, global_batch_size=n) for n in range(1, 100)))
    figure = _figures(many)["time"]
    assert len(figure.marks) == MOST_PLACES
    assert f"the first {MOST_PLACES} of 99 values" in figure.summary


def test_numbers_far_apart_are_drawn_by_their_logarithm() -> None:
    assert _figures(SCALING)["time"].x.is_log is False
    wide = table(*(cell(0.1, global_batch_size=n) for n in (32, 256)))
    assert _figures(wide)["time"].x.is_log is True


def test_what_has_no_limit_is_not_on_an_axis_of_bandwidths() -> None:
    limited = table(
        *(cell(0.1, world_size=2, bandwidth_bytes_per_s=b) for b in (None, 1e6, 2e6)),
    )
    lines = _lines(_figures(limited, along="bandwidth_mbit_per_s")["time"])
    assert [x for x, _ in lines["this sweep"]] == [1e6, 2e6]


def test_without_prices_there_is_no_cost_and_without_times_nothing() -> None:
    waiting = table(cell(), cell(world_size=2))
    assert _figures(waiting) == {}
    assert set(_figures(table(cell(0.1), cell(0.2, world_size=2)))) == {"time"}


def test_cost_and_time_are_held_against_each_other() -> None:
    figure = _figures(SCALING)["cost-time"]
    assert _lines(figure) == {
        "Pareto front, its cells solid": [(0.2, 10.0)],
        "world size 2": [(0.2, 10.0), (0.2, 10.0)],
        "world size 4": [(0.4, 10.0), (0.4, 10.0)],
    }
    front, *sizes = figure.series
    assert (front.is_joined, front.has_dots) == (True, False)
    assert not any(one.is_joined for one in sizes)


def test_cells_are_put_in_order_and_what_is_unknown_comes_last() -> None:
    lines = table(cell(0.2), cell(global_batch_size=16), cell(0.1, global_batch_size=128))
    former = read_choice(MultiDict({"sort": "-run_count"}), lines)
    assert (former.sort, former.is_descending) == ("repetition_count", True)
    for sort, batches in (("step_time", [128, 64, 16]), ("-step_time", [64, 128, 16])):
        ordered = in_order(lines.lines, read_choice(MultiDict({"sort": sort}), lines))
        assert [line.configuration["global_batch_size"] for line in ordered] == batches


def test_an_address_keeps_what_was_chosen() -> None:
    choice = read_choice(MultiDict({"sort": "cost", "at_world_size": "2", "page": "3"}), SCALING)
    assert choice.address(sort=None, cells=2) == {"at_world_size": "2", "page": "3", "cells": "2"}


def test_one_machine_is_at_every_emulator() -> None:
    gang: dict[str, Any] = {"world_size": 2, "one_way_delay_s": 0.02}
    of = table(
        cell(0.1),
        cell(0.2, **gang, emulator="tc_netem"),
        cell(0.3, **gang, emulator="tcp_proxy"),
    )
    choice = read_choice({"at_emulator": "tcp_proxy"}, of)
    admitted = [line.configuration["world_size"] for line, _ in choice.admitted(of)]
    assert admitted == [1, 2]
