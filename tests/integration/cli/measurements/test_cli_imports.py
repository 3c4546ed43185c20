"""`farm import` and `farm origins` from the command line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.configuration.axes import AXES, AXES_WITHOUT_COLUMN
from farm.importers import IMPORTERS
from farm.importers.contracts import Publication, read_publication
from farm.measuring import quantities
from farm.measuring.measurement_table import MEASUREMENT_TABLE, ColumnSource
from farm.store.engine import reading, writing
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_measurement, add_sweep, job_spec

HEADER = "world_size,global_batch_size,step_time_s"


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "mine.csv"
    file.write_text(f"{HEADER}\n2,64,0.5\n4,64,0.3\n")
    return file


def stored(engine: sa.Engine, origin: str) -> list[MeasurementRow]:
    with reading(engine) as session:
        return list(list_measurements(session, MeasurementFilter(origin=origin), limit=1000))


@pytest.mark.parametrize("publication", IMPORTERS, ids=lambda p: p.name)
def test_a_published_study_is_imported_once(
    farm: FarmCommand, engine: sa.Engine, publication: Publication
) -> None:
    name, read_count = publication.name, len(read_publication(publication).measurements)
    answer = farm.json("import", name)
    assert answer["added_count"] == answer["measurement_count"] == len(stored(engine, name))
    assert answer["added_count"] == read_count > 0
    assert answer["row_count"] == answer["measurement_count"] + answer["repeated_count"]
    assert answer["citation"]
    again = farm.json("import", name)
    assert (again["added_count"], again["present_count"]) == (0, answer["added_count"])
    assert len(stored(engine, name)) == answer["added_count"]


def test_what_is_wrong_with_a_study_is_said(farm: FarmCommand) -> None:
    answer = farm.json("import", "anwar2021", "--dry-run")
    assert answer["failed"] == {"out_of_memory": 1}
    assert [(flag["row"], flag["kind"]) for flag in answer["flagged"]] == [
        (89, "impossible"),
        (115, "contradictory"),
    ]
    assert [note["row"] for note in answer["noted"]] == [17, 31, 63]
    shown = farm.text("import", "anwar2021")
    assert shown.startswith("anwar2021: 114 measurements added, 0 were there already\n")
    assert "\n  row 89: accuracy: expected a ratio from 0 to 1, got 2.1095\n" in shown
    assert "\nSource: M. H. Anwar" in shown


def test_a_dry_run_changes_nothing(farm: FarmCommand, engine: sa.Engine, table: Path) -> None:
    answer = farm.json("import", "table", str(table), "--origin", "mine", "--dry-run")
    assert (answer["added_count"], answer["is_dry_run"]) == (2, True)
    assert stored(engine, "mine") == []


def test_one_bad_cell_refuses_the_whole_table(
    farm: FarmCommand, engine: sa.Engine, table: Path
) -> None:
    with table.open("a") as file:
        file.write("8,64,0\n")
    message = farm.refusal("import", "table", str(table), "--origin", "mine", status=2)
    assert message.startswith("farm: row 4, column step_time_s: expected a number of seconds from")
    assert stored(engine, "mine") == []


def test_a_table_gets_an_origin_that_is_listed_and_removed(farm: FarmCommand, table: Path) -> None:
    farm.text("import", "anwar2021")
    farm.text("import", "table", str(table), "--origin", "mine")
    origins = {origin["origin"]: origin for origin in farm.json("origins")}
    assert set(origins) == {"anwar2021", "mine"}
    assert (origins["mine"]["measurement_count"], origins["mine"]["source"]) == (
        2,
        "table mine.csv",
    )
    assert origins["anwar2021"]["failed_count"] == 1
    assert "Anwar" in origins["anwar2021"]["source"]
    assert "mine.csv" in farm.text("origins")
    assert farm.text("origins", "--remove", "mine") == "mine: 2 measurements removed\n"
    assert [origin["origin"] for origin in farm.json("origins")] == ["anwar2021"]
    assert "nothing of it" in farm.refusal("origins", "--remove", "mine", status=1)


def test_replacing_leaves_what_the_file_has(
    farm: FarmCommand, engine: sa.Engine, table: Path
) -> None:
    farm.text("import", "table", str(table), "--origin", "mine")
    table.write_text(f"{HEADER}\n2,64,0.5\n4,64,0.4\n")
    arguments = ("import", "table", str(table), "--origin", "mine", "--replace")
    assert farm.text(*arguments) == "mine: 1 measurement added, 1 was there already, 1 removed\n"
    assert sorted(row.step_time_s or 0 for row in stored(engine, "mine")) == [0.4, 0.5]


def test_a_study_and_a_table_are_not_mixed(farm: FarmCommand, table: Path) -> None:
    farm.text("import", "anwar2021")
    message = farm.refusal("import", "table", str(table), "--origin", "anwar2021", status=2)
    assert message.startswith(
        "farm: origin: expected an origin that does not hold anwar2021 already"
    )
    farm.text("import", "table", str(table), "--origin", "graur2019")
    assert "mine.csv already" in farm.refusal("import", "graur2019", status=2)


def test_the_origin_farm_cannot_be_imported_or_removed(farm: FarmCommand, table: Path) -> None:
    message = farm.refusal("import", "table", str(table), "--origin", "farm", status=2)
    assert "'farm' is what this farm has measured itself" in message
    assert "origin" in farm.refusal("origins", "--remove", "farm", status=2)


def test_an_unknown_column_can_be_ignored(farm: FarmCommand, table: Path) -> None:
    table.write_text(f"{HEADER},notes\n2,64,0.5,x\n")
    arguments = ("import", "table", str(table), "--origin", "mine")
    assert "column notes: expected columns of" in farm.refusal(*arguments, status=2)
    assert farm.json(*arguments, "--ignore", "notes")["added_count"] == 1


def test_what_is_converted_is_told(farm: FarmCommand, engine: sa.Engine, table: Path) -> None:
    table.write_text("world_size,Images/sec,global_batch_size\n2,128,64\n")
    arguments = ("import", "table", str(table), "--origin", "mine")
    how = "step_time_s = global_batch_size / Images/sec"
    assert farm.json(*arguments, "--dry-run")["converted"] == [how]
    assert f"converted: {how}" in farm.text(*arguments)
    assert [row.step_time_s for row in stored(engine, "mine")] == [0.5]


def test_epochs_without_their_steps_are_told(farm: FarmCommand, table: Path) -> None:
    table.write_text("world_size,global_batch_size,time_per_epoch_s\n2,64,5\n")
    arguments = ("import", "table", str(table), "--origin", "mine")
    assert farm.json(*arguments)["untimed_count"] == 1
    assert "1 have neither step_time_s nor steps_per_epoch" in farm.text(*arguments)


def test_a_file_that_is_not_there_says_so(
    farm: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would be cut
    refused = farm.refusal("import", "table", "nowhere.csv", "--origin", "mine", status=2)
    assert "'nowhere.csv'" in refused


def test_a_store_without_measurements_says_so(farm: FarmCommand) -> None:
    assert farm.text("origins") == "nothing is measured yet, and nothing imported\n"
    assert farm.json("origins") == []


def test_what_is_exported_can_be_imported(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path
) -> None:
    with writing(engine) as session:
        ids = add_sweep(session, *(job_spec(repetition=i) for i in range(3)), name="measured")
        add_measurement(session, "1", job_id=ids[0], instance_type='d2, "small"')
        add_measurement(
            session,
            "2",
            job_id=ids[1],
            world_size=2,
            strategy="mwms_ring",
            network="tc_netem",
            one_way_delay_s=0.00397,
            jitter_s=0.0003,
            packet_loss_ratio=0.009,
            bandwidth_bytes_per_s=12_500_000.0,
            steps_per_epoch=45,
            time_per_epoch_s=4.6,
            accuracy=0.91,
            fingerprint="f" * 64,
            repetition=1,
            throughput_examples_per_s=640.0,
            cpu_ratio=0.5,
            resident_bytes=2**40,
            details={
                "axes": {"optimizer": "adamw", "learning_rate": 0.001},
                "quantities": {"data_wait_s": 0.003},
            },
            flags=[{"kind": "foreign_load", "message": "other programs took 54 %", "value": 0.54}],
        )
        add_measurement(session, "3", job_id=ids[2], status="out_of_memory", step_time_s=None)
    file = tmp_path / "measured.csv"
    farm.text("export", "measured", "--out", str(file))
    assert farm.json("import", "table", str(file), "--origin", "again")["added_count"] == 3
    header = csv.DictReader(io.StringIO(file.read_text())).fieldnames
    assert header == [column.name for column in MEASUREMENT_TABLE]
    further = {axis.field for axis in AXES_WITHOUT_COLUMN}
    for ours, again in zip(stored(engine, "farm"), stored(engine, "again"), strict=True):
        for axis in AXES:
            assert axis.value_measured(again) == axis.value_measured(ours), axis.name
        for column in MEASUREMENT_TABLE:
            if column.source is ColumnSource.QUANTITY:
                value = quantities.QUANTITIES_BY_NAME[column.name].value_measured
                if column.name != "throughput_examples_per_s":  # which follows from others
                    assert value(again) == value(ours), column
            elif column.is_imported and column.stored not in further:
                assert getattr(again, column.stored) == getattr(ours, column.stored), column
    assert "disturbed:\n  row 3: other programs took 54 %" in farm.text(
        "import", "table", str(file), "--origin", "again", "--dry-run"
    )


def test_nothing_replaces_nothing(farm: FarmCommand, engine: sa.Engine, table: Path) -> None:
    arguments = ("import", "table", str(table), "--origin", "mine")
    farm.text(*arguments)
    table.write_text(f"{HEADER}\n")
    refused = farm.refusal(*arguments, "--replace", status=2)
    assert refused.startswith("farm: --replace: expected at least one row to replace the origin by")
    assert len(stored(engine, "mine")) == 2
