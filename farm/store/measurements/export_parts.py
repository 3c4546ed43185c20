"""The measurements of a sweep or an origin as rows of a file, in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES_BY_NAME
from farm.measuring import quantities
from farm.measuring.measurement_table import (
    FLAG_FIELDS,
    MEASUREMENT_TABLE,
    CellKind,
    ColumnSource,
    TableColumn,
)
from farm.store.measurements.measurements import no_measurement_of
from farm.store.result_tables import MeasurementRow, axis_value, quantity_column
from farm.store.tables import JobRow
from farm.values.fields import canonical

_ROWS_A_PART = 1000
_STORED = [column for column in MEASUREMENT_TABLE if column.source is not ColumnSource.SPEC]
_THROUGHPUT = "throughput_examples_per_s"
_VERSIONS = {
    "benchfarm_version": "benchfarm",
    "python_version": "Python",
    "tensorflow_version": "TensorFlow",
    "kernel": "kernel",
}


def export_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield a sweep's measurements as rows of the measurement table, by job.

    Delays are in milliseconds, bandwidths in megabits per second and losses in percent, as in
    every file that people read; what was not measured is None.
    """
    query = _of_jobs().where(JobRow.sweep_id == sweep_id)
    for rows in _pages(session, query, JobRow.id):
        yield [_of_job(row) for row in rows]


def export_row(session: Session, job_id: int) -> dict[str, object] | None:
    """Return a job's measurement as such a row; None where it has none."""
    row = session.execute(_of_jobs().where(JobRow.id == job_id)).one_or_none()
    return None if row is None else _of_job(row)


def _of_jobs() -> Any:
    return select(JobRow.id, JobRow.spec, *_COLUMNS).join(
        MeasurementRow, MeasurementRow.job_id == JobRow.id
    )


def _of_job(row: Any) -> dict[str, object]:
    spec = row[1]
    names = [column.name for column in MEASUREMENT_TABLE if column.source is ColumnSource.SPEC]
    return _exported({**_known(row[2:]), **{name: spec.get(name) for name in names}})


def origin_parts(session: Session, origin: str) -> Iterator[list[dict[str, object]]]:
    """Yield the measurements of an imported origin likewise, in the order of their import.

    What its source told beside them, such as the jobs that measured them, is as it told it.

    Raises:
        NotFound: there are none.
    """
    details = (MeasurementRow.details["printed"], MeasurementRow.details["quantities"])
    query = select(MeasurementRow.id, *details, *_COLUMNS).where(MeasurementRow.origin == origin)
    is_any = False
    for rows in _pages(session, query, MeasurementRow.id):
        is_any = True
        yield [
            _exported({**_known(row[3:]), **_passed_along(row[1] or {}, row[2] or {})})
            for row in rows
        ]
    if not is_any:
        raise no_measurement_of(origin)


def _pages(session: Session, query: Any, key: Any) -> Iterator[Sequence[Any]]:
    """Yield what a query finds in pages, by a key that is its first column."""
    last_id = 0
    while True:
        page = query.where(key > last_id).order_by(key).limit(_ROWS_A_PART)
        rows = session.execute(page).all()
        if not rows:
            return
        yield rows
        last_id = rows[-1][0]


def _column(column: TableColumn) -> Any:
    if column.source is ColumnSource.QUANTITY:
        return quantity_column(quantities.QUANTITIES_BY_NAME[column.name])
    if column.source is ColumnSource.HARDWARE:
        return MeasurementRow.details["hardware"]
    axis = AXES_BY_NAME.get(column.name)
    if axis is None or axis.has_column:
        return getattr(MeasurementRow, column.stored)
    return axis_value(axis)


# Whole rows have twice as many columns, and take five times as long to load.
_COLUMNS = [_column(column) for column in _STORED]


def _known(values: Sequence[Any]) -> dict[str, Any]:
    known = dict(zip((column.name for column in _STORED), values, strict=True))
    return {**known, "versions": _versions(known["versions"] or [])}


def _passed_along(printed: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an import keeps beside a measurement: a rate may not follow from a median."""
    names = (column.name for column in MEASUREMENT_TABLE if not column.is_imported)
    rate = {_THROUGHPUT: measured[_THROUGHPUT]} if _THROUGHPUT in measured else {}
    return {**{name: printed.get(name) for name in names}, **rate}


def _exported(known: Mapping[str, Any]) -> dict[str, object]:
    return {column.name: _written(column, known[column.name]) for column in MEASUREMENT_TABLE}


def _written(column: TableColumn, value: Any) -> object:
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
