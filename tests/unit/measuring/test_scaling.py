"""Scaling efficiency against one machine on the same work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis, AxisKind
from farm.measuring.scaling import baselines, efficiency
from farm.store.result_tables import MeasurementRow

SET_UPS = [axis for axis in AXES if axis.kind is AxisKind.SETUP]


def _row(world_size: int, throughput: float | None, **changes: Any) -> MeasurementRow:
    columns: dict[str, Any] = {
        "status": "ok",
        "model": "mlp",
        "dataset": "digits",
        "training_pass": "forward_backward",
        "strategy": "single" if world_size == 1 else "mwms_ring",
        "fingerprint": "a kind",
        "global_batch_size": 64,
        "world_size": world_size,
        "throughput_examples_per_s": throughput,
    }
    return MeasurementRow(**{**columns, **changes})


def test_a_gang_is_held_against_the_median_of_one_machine() -> None:
    known = baselines([_row(1, 90.0), _row(1, 100.0), _row(1, 500.0), _row(2, 150.0)])
    assert efficiency(_row(2, 150.0), known) == 0.75
    assert efficiency(_row(1, 100.0), known) == 1.0


def test_the_best_way_of_one_machine_is_what_counts() -> None:
    known = baselines([_row(1, 100.0), _row(1, 200.0, strategy="mwms_ring")])
    assert efficiency(_row(2, 200.0), known) == 0.5


@pytest.mark.parametrize(
    ("column", "values"), [("replicas_per_rank", (1, 2)), ("placement", ("soft", "hard"))]
)
def test_one_machine_set_up_in_several_ways_is_several(
    column: str, values: tuple[object, object]
) -> None:
    slow, fast = values
    rows = [_row(1, 100.0, **{column: slow}), _row(1, 100.0, **{column: slow})]
    known = baselines([*rows, _row(1, 200.0, **{column: fast})])
    assert efficiency(_row(2, 200.0), known) == 0.5


@pytest.mark.parametrize(
    "axis",
    [a for a in AXES if a.kind is AxisKind.SETUP and not (a.is_of_training or a.is_of_input)],
    ids=lambda a: a.name,
)
def test_every_axis_of_a_set_up_is_a_way_of_its_own(axis: Axis) -> None:
    def one(way: object, throughput: float) -> Any:
        columns = {**vars(_row(1, throughput)), "flags": [], "server_count": 1, "details": None}
        return SimpleNamespace(**{**columns, axis.field: way}, framework=None)

    known = baselines([one("slow", 100.0), one("slow", 100.0), one("fast", 200.0)])
    assert efficiency(_row(2, 200.0), known) == 0.5


def test_one_machine_in_another_precision_or_with_another_optimizer_is_no_baseline() -> None:
    def one(world_size: int, throughput: float, **axes: object) -> MeasurementRow:
        return _row(world_size, throughput, details={"axes": axes})

    half = {"precision": "bfloat16"}
    known = baselines([one(1, 100.0), one(1, 300.0, **half)])
    assert efficiency(_row(2, 150.0), known) == 0.75
    assert efficiency(one(2, 150.0, precision="float32"), known) == 0.75
    assert efficiency(one(2, 450.0, **half), known) == 0.75
    assert efficiency(one(2, 150.0, optimizer="adamw"), known) is None
    assert efficiency(one(2, 150.0, compile="torch_compile"), known) == 0.75


def test_a_gang_that_loads_its_batches_is_held_against_a_machine_that_does() -> None:
    def one(world_size: int, throughput: float, workers: int) -> MeasurementRow:
        axes = {"input_pipeline": "loader", "data_workers": workers}
        return _row(world_size, throughput, details={"axes": axes})

    known = baselines([_row(1, 300.0), one(1, 50.0, 0), one(1, 50.0, 0), one(1, 100.0, 2)])
    assert efficiency(one(2, 150.0, 0), known) == 0.75
    assert efficiency(_row(2, 450.0), known) == 0.75
    assert efficiency(one(2, 150.0, 0), baselines([_row(1, 300.0)])) is None


def test_other_work_or_other_hardware_is_no_baseline() -> None:
    for changes in (
        {"fingerprint": "another kind"},
        {"global_batch_size": 32},
        {"model": "small_cnn"},
        {"training_pass": "forward"},
        {"status": "out_of_memory"},
    ):
        assert efficiency(_row(2, 150.0), baselines([_row(1, 100.0, **changes)])) is None


def test_without_a_throughput_there_is_no_efficiency() -> None:
    assert efficiency(_row(2, None), baselines([_row(1, 100.0)])) is None


def test_one_machine_of_another_framework_is_no_baseline() -> None:
    known = baselines([_row(1, 100.0, framework="tensorflow"), _row(1, 400.0, framework="torch")])
    assert efficiency(_row(2, 150.0, framework="tensorflow"), known) == 0.75
    assert efficiency(_row(2, 400.0, framework="torch"), known) == 0.5
    assert efficiency(_row(2, 400.0, framework="jax"), known) is None


def test_a_disturbed_baseline_does_not_count_beside_an_undisturbed_one() -> None:
    flag = {"kind": "foreign_load", "message": "", "value": 0.8}
    busy = [_row(1, 20.0, flags=[flag]) for _ in range(3)]
    assert efficiency(_row(2, 150.0), baselines([*busy, _row(1, 100.0)])) == 0.75
    assert efficiency(_row(2, 30.0), baselines(busy)) == 0.75


def test_several_ranks_of_a_machine_scale_as_one_machine() -> None:
    known = baselines([_row(1, 100.0)])
    assert efficiency(_row(4, 150.0), known, ranks_per_agent=2) == 0.75
