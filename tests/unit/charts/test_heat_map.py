"""The map of a sweep's cells: which cell stands where, and how it is drawn."""

from __future__ import annotations

import dataclasses
import json

import pytest
from werkzeug.datastructures import MultiDict

from farm.cells.choice import read_choice
from farm.cells.table import CellState, SweepTable
from farm.charts.heat_map import MOST_COLUMNS, SHADES, FieldKind, HeatMap, heat_map, shade_of
from farm.errors import InvalidSpec
from farm.measuring.noise import Disturbance
from farm.measuring.precision import Repetition, RepetitionState
from tests.stored.sweep_cells import cell, table
from web.drawing.rendered import map_to_plotly

GRID = table(
    *(cell(0.1 * batch / 64, global_batch_size=batch) for batch in (64, 128)),
    *(
        cell(0.1 * batch / 64 / n, world_size=n, global_batch_size=batch)
        for batch in (64, 128)
        for n in (2, 4)
    ),
)


def _map(of: SweepTable, **query: str) -> HeatMap:
    shown = heat_map(of, read_choice(MultiDict(query), of))
    assert shown is not None
    return shown


def _texts(shown: HeatMap) -> list[list[str]]:
    return [[field.text for field in row] for row in shown.fields]


def test_one_machine_begins_every_row_of_gangs() -> None:
    shown = _map(GRID)
    assert (shown.x_title, shown.y_title) == ("World size", "Batch")
    assert (shown.columns, shown.rows) == (["1", "2", "4"], ["64", "128"])
    assert _texts(shown) == [["100 ms", "50.0 ms", "25.0 ms"], ["200 ms", "100 ms", "50.0 ms"]]
    assert shown.held == "mwms_ring"
    assert (shown.least, shown.most) == ("25.0 ms", "200 ms")


def test_axes_and_metric_are_chosen_and_the_rest_is_held() -> None:
    shown = _map(GRID, x="global_batch_size", y="strategy", at_world_size="4")
    assert shown.columns == ["64", "128"]
    assert shown.rows == ["mwms_ring", "single"]
    assert [field.kind for field in shown.fields[1]] == [FieldKind.MISSING] * 2
    assert _texts(shown)[0] == ["25.0 ms", "50.0 ms"]
    assert "not in this sweep" in shown.fields[1][0].description
    unknown = _map(GRID, metric="cost")
    assert {field.text for row in unknown.fields for field in row} == {"?"}
    assert unknown.least is None


def test_one_machine_stands_at_every_delay() -> None:
    delays = table(
        cell(0.1),
        *(cell(0.05 + delay, world_size=2, one_way_delay_s=delay) for delay in (0.0, 0.02)),
    )
    shown = _map(delays, x="one_way_delay_ms", y="world_size")
    assert shown.columns == ["0 s", "20.0 ms"]
    assert _texts(shown) == [["100 ms", "100 ms"], ["50.0 ms", "70.0 ms"]]


def test_what_failed_waits_or_is_missing_is_told_apart() -> None:
    shown = _map(
        table(
            cell(0.1),
            cell(world_size=2, state=CellState.FAILED, failure_kind="out_of_memory"),
            cell(global_batch_size=128),
        )
    )
    [[one, failed], [waits, missing]] = shown.fields
    assert (one.kind, failed.kind) == (FieldKind.KNOWN, FieldKind.FAILED)
    assert (waits.kind, missing.kind) == (FieldKind.OPEN, FieldKind.MISSING)
    assert failed.description == "failed, out of memory"
    assert waits.text == "waiting"
    assert "1 failed" in shown.summary


def test_what_the_two_axes_settle_is_not_held_and_every_cell_is_shown() -> None:
    """As in the demo, which trains each batch size for another number of epochs."""
    demo = table(
        *(
            cell(0.01 * n, world_size=n, global_batch_size=batch, steps=None, epochs=epochs)
            for batch, epochs in ((32, 30), (1024, 100))
            for n in (1, 2)
        )
    )
    shown = _map(demo)
    assert _texts(shown) == [["10.0 ms", "20.0 ms"], ["10.0 ms", "20.0 ms"]]
    assert shown.held == "mwms_ring"
    assert shown.differing == ["length"]
    assert "30 epochs" in shown.fields[0][1].description
    assert "Length differs from field to field." in shown.remarks
    assert not any("not in this sweep" in remark for remark in shown.remarks)


def test_a_cell_beside_what_is_held_is_not_said_to_be_missing() -> None:
    shown = _map(
        table(
            *(cell(0.1 / n, world_size=n, strategy="mwms_ring") for n in (2, 4)),
            *(cell(0.3, world_size=n, strategy="ps_sync") for n in (2, 8)),
            cell(0.1, global_batch_size=128, world_size=2),
        ),
        x="world_size",
        y="global_batch_size",
    )
    [[_, _, elsewhere], [_, missing, _]] = shown.fields
    assert elsewhere.kind is FieldKind.ELSEWHERE
    assert elsewhere.description == "in this sweep at ps_sync: 300 ms"
    assert elsewhere.job_id is not None
    assert missing.kind is FieldKind.MISSING
    assert any(remark.startswith("Elsewhere:") for remark in shown.remarks)


def test_what_was_left_out_as_impossible_is_not_said_to_be_missing() -> None:
    line = (
        "case[0]: model=mlp dataset=digits strategy={} world_size=4 global_batch_size={}"
        ": global_batch_size: expected at least 4, got 2"
    )
    of = table(
        *(cell(0.1, world_size=n, global_batch_size=64) for n in (2, 4)),
        cell(0.1, world_size=2, global_batch_size=2),
        skipped=[line.format("mwms_ring", 2), line.format("ps_sync", 8)],
    )
    shown = _map(of)
    assert _texts(shown) == [["100 ms", "impossible"], ["100 ms", "100 ms"]]
    assert (
        shown.fields[0][1].description == "left out: global_batch_size: expected at least 4, got 2"
    )
    delays = table(
        *(
            cell(0.1, world_size=2, one_way_delay_s=d, jitter_s=j)
            for d, j in ((0, 0), (0.02, 0.01))
        ),
        skipped=["case[0]: world_size=2 one_way_delay_ms=20: needs an agent with netem"],
    )
    shown = _map(delays, x="one_way_delay_ms", y="jitter_ms")
    assert [[f.kind.value for f in row] for row in shown.fields] == [
        ["known", "impossible"],
        ["missing", "known"],
    ]


def test_an_open_cell_says_how_it_stands_and_a_disturbed_one_by_a_sign() -> None:
    shown = _map(
        table(
            cell(0.1, 0.2, 0.3, strategy="mwms_ring", disturbed=(Disturbance(weight=0.5),) * 2),
            cell(world_size=2, state=CellState.RUNNING, failed_job_ids=(7,)),
            cell(world_size=4, state=CellState.CANCELLED),
            cell(
                0.1,
                world_size=8,
                repetitions=(
                    Repetition(
                        job_id=1, state=RepetitionState.MEASURED, step_time_s=0.1, fingerprint="x"
                    ),
                    Repetition(job_id=2, state=RepetitionState.PENDING),
                ),
            ),
        )
    )
    [row] = shown.fields
    assert [field.text for field in row] == ["200 ms !", "running", "cancelled", "100 ms"]
    assert row[0].description == "200 ms, 3 repetitions, 2 disturbed"
    assert row[1].description == "running, 1 failed"
    assert row[3].description == "100 ms, 1 of 2 repetitions so far"
    assert any(remark.startswith("! after a number:") for remark in shown.remarks)


def test_a_number_without_the_disturbed_repetitions_has_no_sign() -> None:
    line = cell(0.1, 0.2, 0.3, strategy="mwms_ring", disturbed=(Disturbance(weight=0.5),))
    line = dataclasses.replace(line, set_aside_count=1)
    shown = _map(table(line, cell(0.1, world_size=2)))
    assert [field.text for field in shown.fields[0]] == ["200 ms", "100 ms"]
    assert shown.fields[0][0].description == "200 ms, 3 repetitions, 1 disturbed not counted"
    assert not any(remark.startswith("!") for remark in shown.remarks)


def test_a_sweep_that_varies_nothing_has_no_map() -> None:
    single = table(cell(0.1))
    assert heat_map(single, read_choice(MultiDict(), single)) is None


def test_a_sweep_of_one_axis_is_one_row() -> None:
    shown = _map(table(cell(0.1), cell(0.2, global_batch_size=128)))
    assert _texts(shown) == [["100 ms", "200 ms"]]
    assert (shown.rows, shown.y_title) == ([""], "")


def test_too_many_values_are_left_out_and_said() -> None:
    shown = _map(table(*(cell(0.1, global_batch_size=n) for n in range(1, 40))))
    assert len(shown.columns) == MOST_COLUMNS
    assert shown.left_out == f"the first {MOST_COLUMNS} of 39 values of batch"


def test_cells_that_differ_in_no_axis_are_counted() -> None:
    twice = table(cell(0.1), cell(0.3, 0.3, cell_hash="other"), cell(0.2, world_size=2))
    shown = _map(twice)
    assert _texts(shown) == [["–", "200 ms"], ["300 ms", "–"]]  # noqa: RUF001 # a dash
    assert shown.left_out == "1 cell stands behind another that differs in no axis"


@pytest.mark.parametrize(
    ("value", "ends", "shade"),
    [
        (1.0, (1.0, 1.0), 0),
        (1.0, (1.0, 2.0), 0),
        (2.0, (1.0, 2.0), SHADES - 1),
        (10.0, (1.0, 1000.0), SHADES // 3),  # a third of three decades
        (0.0, (0.0, 100.0), 0),
    ],
)
def test_shades_go_from_least_to_most(value: float, ends: tuple[float, float], shade: int) -> None:
    assert shade_of(value, *ends) == shade


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"x": "colour"}, "x"),
        ({"y": "model"}, "y"),  # which this sweep does not vary
        ({"x": "world_size", "y": "world_size"}, "y"),
        ({"metric": "beauty"}, "metric"),
        ({"along": "strategy"}, "along"),
        ({"at_world_size": "3"}, "at_world_size"),
        ({"at_model": "mlp"}, "at_model"),
        ({"sort": "model"}, "sort"),
        ({"show": "all"}, "show"),
    ],
)
def test_what_a_sweep_does_not_have_is_refused(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_choice(MultiDict(query), GRID)
    assert caught.value.field == field


def test_what_forms_send_empty_is_not_chosen() -> None:
    choice = read_choice(MultiDict({"x": "", "at_strategy": "", "sort": ""}), GRID)
    assert choice.given == {}
    assert choice.x is not None
    assert choice.x.name == "world_size"


def test_names_are_text_to_plotly() -> None:
    evil = "<b>x</b>"
    shown = _map(table(cell(0.1, strategy=evil), cell(0.2, strategy=f"{evil}2")), x="strategy")
    drawing = map_to_plotly(shown)
    assert "<b" not in json.dumps([drawing["data"], drawing["layout"]])


def test_plotly_gets_a_rectangle_for_each_field() -> None:
    drawing = map_to_plotly(_map(GRID))
    layout = drawing["layout"]
    assert isinstance(layout, dict)
    assert len(layout["shapes"]) == 6
    assert layout["shapes"][0]["tone"] in {f"h{n}" for n in range(SHADES)}
    assert layout["yaxis"]["range"] == [1.5, -0.5]  # the first row is above
    data = drawing["data"]
    assert isinstance(data, list)
    assert data[0]["text"][:3] == ["100 ms", "50.0 ms", "25.0 ms"]
