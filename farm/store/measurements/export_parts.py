"""The measurements of a sweep as rows of a file, in parts that fit into memory. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.configuration.axes import BY_NAME
from farm.measuring import quantities
from farm.measuring.measurement_table import (
    FLAG_FIELDS,
    MEASUREMENT_TABLE,
    CellKind,
    ColumnSource,
    TableColumn,
)
from farm.store.result_tables import MeasurementRow, axis_value, quantity_column
from farm.store.tables import JobRow
from farm.values.fields import canonical

_ROWS_A_PART = 1000
_STORED = [column for column in MEASUREMENT_TABLE if column.source is not ColumnSource.SPEC]
_VERSIONS = {
    "benchfarm_version": "benchfarm",
    "python_version": "Python",
    "tensorflow_version": "TensorFlow",
    "kernel": "kernel",
}


def export_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield a sweep's measurements as rows of `EXPORT_COLUMNS`, by job.

    Delays are in milliseconds, bandwidths in megabits per second and losses in percent, as in
    every file that people read; what was not measured is None.
    """
    last_id = 0
    while True:
        rows = session.execute(
            _rows()
            .where(JobRow.sweep_id == sweep_id, JobRow.id > last_id)
            .order_by(JobRow.id)
            .limit(_ROWS_A_PART)
        ).all()
        if not rows:
            return
        yield [_exported(row[1], row[2:]) for row in rows]
        last_id = rows[-1][0]


def export_row(session: Session, job_id: int) -> dict[str, object] | None:
    """Return a job's measurement as such a row; None where it has none."""
    row = session.execute(_rows().where(JobRow.id == job_id)).one_or_none()
    return None if row is None else _exported(row[1], row[2:])


def _rows() -> Any:
    # Whole rows have twice as many columns, and take five times as long to load.
    columns = [_column(column) for column in _STORED]
    return select(JobRow.id, JobRow.spec, *columns).join(
        MeasurementRow, MeasurementRow.job_id == JobRow.id
    )


def _column(column: TableColumn) -> Any:
    if column.source is ColumnSource.QUANTITY:
        return quantity_column(quantities.BY_NAME[column.name])
    if column.source is ColumnSource.HARDWARE:
        return MeasurementRow.details["hardware"]
    axis = BY_NAME.get(column.name)
    if axis is None or axis.has_column:
        return getattr(MeasurementRow, column.stored)
    return axis_value(axis)


def _exported(spec: dict[str, Any], values: Any) -> dict[str, object]:
    stored = dict(zip((column.name for column in _STORED), values, strict=True))
    return {
        column.name: _written(
            column,
            spec.get(column.name) if column.source is ColumnSource.SPEC else stored[column.name],
        )
        for column in MEASUREMENT_TABLE
    }


def _written(column: TableColumn, value: Any) -> object:
    if column.source is ColumnSource.HARDWARE:
        return _versions(value or [])
    if column.kind is CellKind.FLAGS:
        return [{name: flag.get(name) for name in FLAG_FIELDS} for flag in value]
    if value is not None and column.kind is CellKind.WHOLE:
        return int(value)
    if value is None or column.factor == 1:
        return value
    return canonical(value * column.factor)


def _versions(hardware: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the versions of the software, each set of them once, in the order of the ranks."""
    texts = []
    for one in hardware:
        known = [f"{title} {one[name]}" for name, title in _VERSIONS.items() if one.get(name)]
        software = one.get("accelerator_software") or {}
        texts.append(", ".join([*known, *(f"{name} {software[name]}" for name in software)]))
    return "; ".join(dict.fromkeys(texts)) or None
