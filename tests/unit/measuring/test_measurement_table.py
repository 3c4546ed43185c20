"""The one declaration of the measurement table's columns, and what follows from it."""

from __future__ import annotations

import dataclasses

from farm.configuration.axes import AXES_WITHOUT_COLUMN
from farm.configuration.spec import JobSpec, TrainingPass
from farm.importers.table import COLUMNS, REQUIRED, read_table
from farm.measuring.measurement_table import MEASUREMENT_TABLE, ColumnSource
from farm.store.result_tables import MeasurementRow


def test_an_import_takes_an_empty_cell_for_what_its_column_declares() -> None:
    [read] = read_table(b"world_size,global_batch_size,time_per_epoch_s\n2,8,1\n").measurements
    stored = {"0": 0, "`ok`": "ok", "counted in order": 0, "none": ()}
    stored["`global_batch_size` over `step_time_s`"] = None
    stored["`forward_backward`"] = TrainingPass.FORWARD_BACKWARD.value
    imported = [column for column in MEASUREMENT_TABLE if column.is_imported]
    assert [column.name for column in imported if column.if_empty == "refused"] == [*REQUIRED]
    further = {axis.field for axis in AXES_WITHOUT_COLUMN}  # whose default is that of jobs, too
    for column in imported:
        if column.name not in (*REQUIRED, "time_per_epoch_s") and column.stored not in further:
            name = column.stored
            value = getattr(read, name) if hasattr(read, name) else read[name]
            # What is not stored is known where it is read, such as one copy in a rank.
            assert value == stored.get(column.if_empty), column.name


def test_every_column_is_stored_under_its_name() -> None:
    stored = set(MeasurementRow.__table__.columns.keys())
    fields = {field.name for field in dataclasses.fields(JobSpec)}
    for column in MEASUREMENT_TABLE:
        # Both of these may be among the details.
        if column.source not in (ColumnSource.QUANTITY, ColumnSource.HARDWARE):
            known = fields if column.source is ColumnSource.SPEC else stored
            is_among_axes = column.stored in {axis.field for axis in AXES_WITHOUT_COLUMN}
            assert column.stored in known or is_among_axes, column.name


def test_an_import_reads_what_is_declared_as_imported() -> None:
    assert set(COLUMNS) == {column.name for column in MEASUREMENT_TABLE if column.is_imported}
