from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from farm.configuration.axes import AXES_BY_FIELD
from farm.exporting import MEASUREMENTS
from farm.measuring.quantities import Quantity
from farm.store.engine import reading, writing
from farm.store.measurements.export_parts import export_parts
from farm.store.measurements.measurements import (
    MeasurementFilter,
    insert_measurements,
    list_measurements,
    measurements_stamp,
    observed_rows,
)
from farm.store.result_tables import MeasurementRow, quantity_column
from farm.store.tables import JobRow
from tests.factories import NOW, add_job, add_measurement, add_sweep, job_spec

_HARDWARE = {
    "benchfarm_version": "0.1.0",
    "python_version": "3.11.7",
    "tensorflow_version": None,
    "kernel": "6.1.0",
    "accelerator_software": {"driver": "550.54"},
}


def test_a_job_has_one_measurement(engine: sa.Engine) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_measurement(session, f"job {job_id}", job_id=job_id)
    with pytest.raises(IntegrityError), writing(engine) as session:
        add_measurement(session, "other key", job_id=job_id)


def test_a_source_is_measured_once_for_each_origin(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_measurement(session, "row 1", origin="a study")
        add_measurement(session, "row 1", origin="another study")
    with pytest.raises(IntegrityError), writing(engine) as session:
        add_measurement(session, "row 1", origin="a study")


def test_missing_stays_none_and_zero_stays_zero(engine: sa.Engine) -> None:
    with writing(engine) as session:
        insert_measurements(
            session,
            [
                {
                    "origin": "farm",
                    "source_key": "k",
                    "created_at": NOW,
                    "status": "ok",
                    "training_pass": "forward",
                    "world_size": 2,
                    "global_batch_size": 8,
                    "step_time_s": None,
                    "cpu_ratio": 0.0,
                    "details": {"agents": ["a1"]},
                }
            ],
        )
    with reading(engine) as session:
        [row] = list_measurements(session, MeasurementFilter())
    assert (row.step_time_s, row.cpu_ratio, row.model) == (None, 0.0, None)
    assert (row.one_way_delay_s, row.server_count, row.repetition) == (0.0, 0, 0)
    assert row.details == {"agents": ["a1"]}


@pytest.mark.parametrize(
    "other",
    [
        {"origin": "a study"},
        {"model": "small_cnn"},
        {"dataset": "mnist"},
        {"training_pass": "forward"},
        {"strategy": "mwms_ring"},
        {"instance_type": "d4"},
        {"fingerprint": "g"},
        {"world_size": 2},
        {"global_batch_size": 64},
        {"one_way_delay_s": 0.02},
        {"status": "out_of_memory"},
    ],
)
def test_a_filter_tells_measurements_apart(engine: sa.Engine, other: dict[str, object]) -> None:
    with writing(engine) as session:
        add_measurement(session, "one", instance_type="d2", fingerprint="f")
        wanted = add_measurement(
            session, "two", **{"instance_type": "d2", "fingerprint": "f", **other}
        )
        axes: Any = {name: value for name, value in other.items() if name in AXES_BY_FIELD}
        others: Any = {name: value for name, value in other.items() if name not in AXES_BY_FIELD}
        found = list_measurements(session, MeasurementFilter(axes=axes, **others))
    assert [row.id for row in found] == [wanted]


def test_measurements_are_listed_in_pages(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = [add_measurement(session, str(n)) for n in range(3)]
        page = list_measurements(session, MeasurementFilter(), limit=2)
        rest = list_measurements(session, MeasurementFilter(), after_id=page[-1].id, limit=2)
    assert [row.id for row in [*page, *rest]] == ids


def test_an_export_has_the_columns_and_units_of_the_measurement_table(engine: sa.Engine) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, job_spec(seed=7), job_spec(repetition=1, epochs=3))
        add_measurement(session, "of no sweep")
        add_measurement(
            session, "second", job_id=ids[1], status="out_of_memory", step_time_s=None, repetition=1
        )
        add_measurement(
            session,
            "first",
            job_id=ids[0],
            attempt_id=11,
            idle_ratio=0.25,
            staleness_max=3,
            throughput_examples_per_s=320.0,
            cpu_ratio=0.5,
            resident_bytes=10**9,
            flags=[{"kind": "steal", "message": "12 % were stolen"}],
            one_way_delay_s=0.00397,
            bandwidth_bytes_per_s=12_500_000.0,
            packet_loss_ratio=0.009,
            details={"hardware": [_HARDWARE, {**_HARDWARE, "kernel": "6.6"}, _HARDWARE]},
        )
        [rows] = export_parts(session, session.get_one(JobRow, ids[0]).sweep_id)
    assert [tuple(row) for row in rows] == [tuple(MEASUREMENTS)] * 2
    first, second = rows
    assert first["one_way_delay_ms"] == 3.97
    assert first["bandwidth_mbit_per_s"] == 100.0
    assert (first["idle_ratio"], first["staleness_max"], first["push_s"]) == (0.25, 3, None)
    assert first["packet_loss_percent"] == 0.9
    assert (first["job_id"], first["seed"], first["steps"]) == (ids[0], 7, 10)
    assert (first["attempt_id"], second["attempt_id"]) == (11, None)
    software = "benchfarm 0.1.0, Python 3.11.7, kernel {}, driver 550.54"
    assert first["versions"] == "; ".join(map(software.format, ("6.1.0", "6.6")))
    assert second["versions"] is None
    assert (first["throughput_examples_per_s"], first["cpu_ratio"]) == (320.0, 0.5)
    assert first["resident_bytes"] == 10**9
    assert first["flags"] == [{"kind": "steal", "message": "12 % were stolen", "value": None}]
    assert (second["job_id"], second["steps"], second["flags"]) == (ids[1], None, [])
    assert (first["pass"], first["status"], first["step_time_s"]) == ("forward_backward", "ok", 0.1)
    assert (second["status"], second["step_time_s"]) == ("out_of_memory", None)
    assert (second["one_way_delay_ms"], second["bandwidth_mbit_per_s"]) == (0.0, None)


def test_a_stamp_changes_with_measurements_of_its_own_kind_alone(engine: sa.Engine) -> None:
    of_farm, of_study = (
        MeasurementFilter(origin="farm", axes={"model": "mlp"}),
        MeasurementFilter(origin="a study"),
    )

    def stamps() -> tuple[object, object]:
        with reading(engine) as session:
            return measurements_stamp(session, of_farm), measurements_stamp(session, of_study)

    before = stamps()
    with writing(engine) as session:
        add_measurement(session, "1")
        add_measurement(session, "2", model="small_cnn")
    after = stamps()
    assert after[0] != before[0]
    assert after[1] == before[1]
    with writing(engine) as session:
        add_measurement(session, "3", model="small_cnn")
    assert stamps() == after


def test_what_answers_are_made_of_comes_with_its_agents(engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_measurement(session, "1", details={"agents": ["a1", "a2"], "row": 3})
        add_measurement(session, "2", status="out_of_memory", step_time_s=None)
        add_measurement(session, "3", origin="a study")
        rows = observed_rows(session, MeasurementFilter(origin="farm"))
    assert [(row.status, row.step_time_s, row.agents) for row in rows] == [
        ("ok", 0.1, ["a1", "a2"]),
        ("out_of_memory", None, None),
    ]


@pytest.mark.parametrize("value", [3_000_000_000, 1000.0, 2.7, None])
def test_a_quantity_without_a_column_is_read_whatever_its_size(
    engine: sa.Engine, value: float | None
) -> None:
    quantity = Quantity(name="flop_count", meaning="of a step", of=lambda _: None, is_whole=True)
    with writing(engine) as session:
        details = {"quantities": {"flop_count": value}}
        insert_id = add_measurement(session, "row 1", details=details)
        add_measurement(session, "from before it was declared", details={})
    with reading(engine) as session:
        rows = session.execute(
            sa.select(MeasurementRow.id, quantity_column(quantity)).order_by(MeasurementRow.id)
        ).all()
        assert [tuple(row) for row in rows] == [(insert_id, value), (insert_id + 1, None)]
        row = session.get_one(MeasurementRow, insert_id)
        assert quantity.value_measured(row) == value
