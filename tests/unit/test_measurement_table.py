"""The one declaration of the measurement table's columns, and what follows from it."""

from __future__ import annotations

import dataclasses

from farm.core.measurement_table import MEASUREMENT_TABLE, Source
from farm.core.spec import JobSpec
from farm.importers.table import COLUMNS
from farm.store.result_tables import MeasurementRow
from tests.unit.test_docs import GUIDE, rows, section


def test_the_guide_describes_every_column_of_an_export_and_no_other() -> None:
    documented = rows(section(GUIDE, "Export"))
    assert documented == [
        [f"`{column.name}`", column.kind.value, column.unit, column.meaning]
        for column in MEASUREMENT_TABLE
    ]


def test_every_column_is_stored_under_its_name() -> None:
    stored = set(MeasurementRow.__table__.columns.keys())
    asked = {field.name for field in dataclasses.fields(JobSpec)}
    for column in MEASUREMENT_TABLE:
        known = stored if column.source is Source.MEASUREMENT else asked
        assert column.stored in known, column.name


def test_an_import_reads_what_is_declared_as_imported() -> None:
    assert list(COLUMNS) == [column.name for column in MEASUREMENT_TABLE if column.is_imported]
