"""Imported measurements: stored once, removed by origin, and summed up.

The farm's own measurements have the origin "farm", which no import can write to or remove.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, delete, func, select
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES, AXES_WITHOUT_COLUMN
from farm.errors import InvalidSpec
from farm.measuring.imported import ImportedMeasurement, ImportFlag
from farm.measuring.measurement import OK, OWN_ORIGIN
from farm.measuring.quantities import FURTHER_QUANTITIES, QUANTITIES
from farm.store.engine import insert_into
from farm.store.measurements.measurements import no_measurement_of
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.series.samples import remove_samples

MAX_ORIGIN_CHARACTERS = 64
_KEYS_A_STATEMENT = 1000  # databases limit the parameters of one statement
_ROWS_AT_ONCE = 5000

# Columns of the store that an imported measurement has under the same name.
_SHARED = (
    *("source_key", "status", "framework", "instance_type", "repetition", "fingerprint"),
    "throughput_examples_per_s",  # which follows from the step time
)
_COLUMNS = (
    *(axis.stored for axis in AXES if axis.has_column),
    *(one.name for one in QUANTITIES if one not in FURTHER_QUANTITIES and one.name not in _SHARED),
)
# What is kept among the details; of the throughput, the one that the source has.
_FURTHER_AXES = tuple(axis.field for axis in AXES_WITHOUT_COLUMN)
_FURTHER_QUANTITIES = tuple(one.name for one in QUANTITIES if one.name not in _COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Result of an import: measurements added, already present, and removed."""

    added_count: int
    present_count: int
    removed_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginSummary:
    """Summary of one origin in the store. `source`: the source of its first row."""

    origin: str
    measurement_count: int
    failed_count: int
    workload_count: int
    fingerprint_count: int  # kinds of hardware, one of them "not known"
    first_at: dt.datetime
    last_at: dt.datetime
    source: str | None


def check_origin(origin: str) -> str:
    """Return the origin of an import as it is stored.

    Raises:
        InvalidSpec: it is the farm's own, or no name.
    """
    name = origin.strip()
    if not name or not name.isprintable() or len(name) > MAX_ORIGIN_CHARACTERS:
        expected = f"a name of 1 to {MAX_ORIGIN_CHARACTERS} printable characters"
        raise InvalidSpec("origin", origin, expected)
    if name.lower() == OWN_ORIGIN:
        expected = f"another name: '{OWN_ORIGIN}' is what this farm has measured itself"
        raise InvalidSpec("origin", origin, expected)
    return name


def import_measurements(
    session: Session,
    measurements: Sequence[ImportedMeasurement],
    *,
    origin: str,
    source: str,
    now: dt.datetime,
    is_replacing: bool = False,
) -> Imported:
    """Add the measurements that the origin lacks; existing ones keep their ids.

    `is_replacing` removes what the origin has and `measurements` have not. `source` says where
    they come from, and is kept with each. The caller owns the transaction.

    Raises:
        InvalidSpec: the origin is the farm's own.
    """
    origin = check_origin(origin)
    stored_keys = _keys(session, origin)
    new = [m for m in measurements if m.source_key not in stored_keys]
    if is_replacing:
        _remove(session, origin, sorted(stored_keys - {m.source_key for m in measurements}))
    rows = [_row(m, origin=origin, source=source, now=now) for m in new]
    # Another import of the same may run beside this one: the later one finds its rows there.
    connection = session.connection()
    statement = insert_into(session, MeasurementRow).on_conflict_do_nothing()
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        connection.execute(statement, rows[begin : begin + _ROWS_AT_ONCE])
    return _difference(stored_keys, measurements, is_replacing=is_replacing)


def preview(
    session: Session,
    measurements: Sequence[ImportedMeasurement],
    *,
    origin: str,
    is_replacing: bool = False,
) -> Imported:
    """Return what `import_measurements` would do. Reads only."""
    return _difference(
        _keys(session, check_origin(origin)), measurements, is_replacing=is_replacing
    )


def source_of(session: Session, origin: str) -> str | None:
    """Return the source of an origin's first measurement; None: the origin is empty."""
    first = select(MeasurementRow.details).where(MeasurementRow.origin == origin)
    details = session.scalar(first.order_by(MeasurementRow.id).limit(1))
    return None if details is None else details.get("source")


def remove_origin(session: Session, origin: str) -> int:
    """Remove all measurements of an imported origin, and return how many there were.

    Raises:
        InvalidSpec: it is the farm's own.
        NotFound: there are none.
    """
    origin = check_origin(origin)
    known = _keys(session, origin)
    if not known:
        raise no_measurement_of(origin)
    session.execute(delete(MeasurementRow).where(MeasurementRow.origin == origin))
    remove_samples(session, origin)
    return len(known)


def origins(session: Session) -> list[OriginSummary]:
    """Return the summary of each origin, the farm's own first and the others by name."""
    row = MeasurementRow
    model, dataset = MEASUREMENTS.model, MEASUREMENTS.dataset
    workload = func.coalesce(model, "") + "\n" + func.coalesce(dataset, "")
    found = session.execute(
        select(
            row.origin,
            func.count().label("measurement_count"),
            func.sum(case((row.status == OK, 0), else_=1)).label("failed_count"),
            func.count(workload.distinct()).label("workload_count"),
            func.count(func.coalesce(row.fingerprint, "").distinct()).label("fingerprint_count"),
            func.min(row.created_at).label("first_at"),
            func.max(row.created_at).label("last_at"),
        ).group_by(row.origin)
    ).all()
    firsts = select(func.min(row.id)).group_by(row.origin)
    details = session.execute(select(row.origin, row.details).where(row.id.in_(firsts)))
    sources = {origin: detail.get("source") for origin, detail in details}
    summaries = [
        OriginSummary(**counted._mapping, source=sources[counted.origin]) for counted in found
    ]
    return sorted(summaries, key=lambda summary: (summary.origin != OWN_ORIGIN, summary.origin))


def origin_names(session: Session) -> list[str]:
    """Return whose measurements the store has, the farm's own first and the others by name."""
    names = session.scalars(select(MeasurementRow.origin).distinct())
    return sorted(names, key=lambda name: (name != OWN_ORIGIN, name))


def _difference(
    known: set[str], measurements: Sequence[ImportedMeasurement], *, is_replacing: bool
) -> Imported:
    keys = {m.source_key for m in measurements}
    return Imported(
        added_count=len(keys - known),
        present_count=len(keys & known),
        removed_count=len(known - keys) if is_replacing else 0,
    )


def _keys(session: Session, origin: str) -> set[str]:
    keys = select(MeasurementRow.source_key).where(MeasurementRow.origin == origin)
    return set(session.scalars(keys))


def _remove(session: Session, origin: str, keys: Sequence[str]) -> None:
    for begin in range(0, len(keys), _KEYS_A_STATEMENT):
        page = keys[begin : begin + _KEYS_A_STATEMENT]
        session.execute(
            delete(MeasurementRow).where(
                MeasurementRow.origin == origin, MeasurementRow.source_key.in_(page)
            )
        )


def _row(
    measurement: ImportedMeasurement, *, origin: str, source: str, now: dt.datetime
) -> Mapping[str, Any]:
    values = measurement.values
    axes = {name: values[name] for name in _FURTHER_AXES if name in values}
    quantities = {name: values[name] for name in _FURTHER_QUANTITIES if name in values}
    return {
        **{column: measurement[column] for column in _COLUMNS},
        **{column: getattr(measurement, column) for column in _SHARED},
        "origin": origin,
        "created_at": now,
        "flags": [_flag(flag) for flag in measurement.flags],
        "details": {
            "source": source,
            "row": measurement.row_number,
            "notes": list(measurement.notes),
            "printed": dict(measurement.printed),
            **({"axes": axes} if axes else {}),
            **({"quantities": quantities} if quantities else {}),
        },
    }


def _flag(flag: ImportFlag) -> dict[str, object]:
    stored: dict[str, object] = {"kind": flag.kind.value, "message": flag.message}
    return stored if flag.value is None else {**stored, "value": flag.value}
