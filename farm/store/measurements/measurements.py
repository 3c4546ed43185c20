"""Measurements: one row for each finished job or imported cell.

Rows of different origins or fingerprints are never pooled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES, AXES_BY_FIELD
from farm.configuration.axis import Value
from farm.errors import NotFound
from farm.measuring.noise import UNDISTURBED, disturbance_of_row
from farm.measuring.quantities import EVIDENT
from farm.store.engine import IDS_A_QUERY
from farm.store.result_tables import MeasurementRow, axis_column, axis_value, quantity_column
from farm.store.tables import JobRow
from farm.values.codec import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFilter:
    """Which measurements are meant; None leaves a column open.

    `axes`: values of axes, by their fields, in base units; None leaves one open, too.
    """

    origin: str | None = None
    instance_type: str | None = None
    fingerprint: str | None = None
    status: str | None = None
    sweep_id: int | None = None  # leaves out imported ones
    axes: Mapping[str, Value] = field(default_factory=dict)


def insert_measurements(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store measurements, by the columns of `MeasurementRow`, with all else that is pending."""
    session.add_all(MeasurementRow(**values) for values in rows)
    session.flush()


def list_measurements(
    session: Session, which: MeasurementFilter, *, after_id: int | None = None, limit: int = 100
) -> Sequence[MeasurementRow]:
    """Return measurements by ascending id; `after_id` goes on from a page's last."""
    query = _where(select(MeasurementRow), which).order_by(MeasurementRow.id).limit(limit)
    if after_id is not None:
        query = query.where(MeasurementRow.id > after_id)
    return session.scalars(query).all()


def measurements_stamp(session: Session, which: MeasurementFilter) -> Hashable:
    """Return a value that changes whenever measurements of that kind are added or removed.

    SQLite gives the id of a removed last row away again, so the ids alone would not do.
    """
    columns = (MeasurementRow.id, MeasurementRow.created_at)
    counted = _where(select(func.count(), *map(func.max, columns)), which)
    return tuple(session.execute(counted).one())


def observed_rows(session: Session, which: MeasurementFilter) -> Sequence[Row[Any]]:
    """Return the data for models and answers, by ascending id: some columns, and `agents`.

    Thousands are read for one answer, and whole rows take ten times as long. Of the details only
    the agents of the ranks are wanted, that of rank 0 first, None of what was imported; most of
    the rest is the hardware of every rank.
    """
    row = MeasurementRow
    columns: tuple[Any, ...] = (
        *(row.id, row.status, row.attempt_id, row.framework, row.instance_type, row.fingerprint),
        *(axis_column(axis).label(axis.stored) for axis in AXES),
        *(quantity_column(quantity).label(quantity.name) for quantity in EVIDENT),
        row.flags,
        row.details["agents"].label("agents"),
    )
    return session.execute(_where(select(*columns), which).order_by(row.id)).all()


def find_measurement(session: Session, measurement_id: int) -> MeasurementRow:
    """Return one measurement. Raises NotFound: it does not exist."""
    row = session.get(MeasurementRow, measurement_id)
    if row is None:
        raise NotFound(f"measurement {measurement_id} does not exist")
    return row


def no_measurement_of(origin: str) -> NotFound:
    """Return the error of a question about an imported origin of which there is nothing."""
    return NotFound(f"origin '{origin}': nothing of it is in this store; see `farm origins`")


def measurement_json(row: MeasurementRow) -> dict[str, object]:
    """Return every column of a measurement, and whether anything disturbed it; for JSON."""
    return {
        **{column.name: getattr(row, column.name) for column in row.__table__.columns},
        "is_disturbed": disturbance_of_row(row) != UNDISTURBED,
        "details": to_json(row.details),
    }


def measurements_of(session: Session, ids: Collection[int]) -> Sequence[MeasurementRow]:
    """Return the measurements of these ids that are still there, in their order; a page's."""
    query = select(MeasurementRow).where(MeasurementRow.id.in_(ids)).order_by(MeasurementRow.id)
    return session.scalars(query).all()


def ids_within(session: Session, sweep_id: int, ids: Collection[int]) -> frozenset[int]:
    """Return which of these measurements are of jobs of the sweep."""
    found: set[int] = set()
    ordered = sorted(ids)
    for begin in range(0, len(ordered), IDS_A_QUERY):
        found.update(
            session.scalars(
                select(MeasurementRow.id)
                .join(JobRow, JobRow.id == MeasurementRow.job_id)
                .where(
                    JobRow.sweep_id == sweep_id,
                    MeasurementRow.id.in_(ordered[begin : begin + IDS_A_QUERY]),
                )
            )
        )
    return frozenset(found)


def flags_by_job(session: Session, job_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return job to what disturbed its measurement, for those of a page's jobs that have one."""
    found: dict[int, list[dict[str, Any]]] = {}
    for begin in range(0, len(job_ids), IDS_A_QUERY):
        page = job_ids[begin : begin + IDS_A_QUERY]
        rows = session.execute(
            select(MeasurementRow.job_id, MeasurementRow.flags).where(
                MeasurementRow.job_id.in_(page)
            )
        )
        found |= {job_id: flags for job_id, flags in rows if job_id is not None}
    return found


def _where(query: Select[*tuple[Any, ...]], which: MeasurementFilter) -> Select[*tuple[Any, ...]]:
    wanted = {f.name: getattr(which, f.name) for f in dataclasses.fields(which)}
    sweep_id, axes = wanted.pop("sweep_id"), wanted.pop("axes")
    if sweep_id is not None:
        query = query.join(JobRow, JobRow.id == MeasurementRow.job_id).where(
            JobRow.sweep_id == sweep_id
        )
    for name, value in axes.items():
        if value is not None:
            query = query.where(axis_value(AXES_BY_FIELD[name]) == value)
    for column, value in wanted.items():
        if value is not None:
            query = query.where(getattr(MeasurementRow, column) == value)
    return query
