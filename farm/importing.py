"""Stores imported measurements, for `farm import` and the page."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec
from farm.importers.contracts import Publication, Reading
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.measurement import OK
from farm.store.engine import short_writing, writing
from farm.store.measurements.imports import (
    Imported,
    check_origin,
    import_measurements,
    preview,
    source_of,
)
from farm.store.series.samples import add_samples, remove_samples

_TABLE = "table "  # begins the names of tables, and no other


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """The origin to import as, the name kept with each measurement, and where to read about it."""

    origin: str
    name: str
    citation: str | None = None


def of_publication(publication: Publication) -> ImportSource:
    """Return the source of a published study."""
    return ImportSource(
        origin=publication.name, name=publication.name, citation=publication.citation
    )


def of_table(file_name: str, *, origin: str) -> ImportSource:
    """Return the source of a table of somebody's own.

    Raises:
        InvalidSpec: the origin is the farm's own, or no name.
    """
    return ImportSource(origin=check_origin(origin), name=f"{_TABLE}{file_name}")


def import_reading(
    session: Session,
    read: Reading,
    source: ImportSource,
    *,
    now: dt.datetime,
    is_replacing: bool = False,
) -> Imported:
    """Store a parsed source, see `import_measurements`. The caller owns the transaction.

    Raises:
        InvalidSpec: the origin holds another source that must not be mixed with this one, or would
            be replaced by nothing.
    """
    _refuse_emptying(read, is_replacing=is_replacing)
    _refuse_mixing(session, source)
    return import_measurements(
        session,
        read.measurements,
        origin=source.origin,
        source=source.name,
        now=now,
        is_replacing=is_replacing,
    )


def import_samples(
    engine: sa.Engine,
    origin: str,
    parts: Iterable[Sequence[Mapping[str, Any]]],
    *,
    is_replacing: bool = False,
) -> None:
    """Store samples, a transaction for each part, so that collectors go on storing meanwhile.

    `is_replacing` removes what the origin has. After an interruption the same import goes on.
    """
    if is_replacing:
        with writing(engine) as session:
            remove_samples(session, origin)
    for rows in parts:
        with short_writing(engine) as session:
            add_samples(session, origin, rows)


def preview_import(
    session: Session, read: Reading, source: ImportSource, *, is_replacing: bool = False
) -> Imported:
    """Return what `import_reading` would do, with its errors. Reads only."""
    _refuse_emptying(read, is_replacing=is_replacing)
    _refuse_mixing(session, source)
    return preview(session, read.measurements, origin=source.origin, is_replacing=is_replacing)


def failed_counts(read: Reading) -> dict[str, int]:
    """Count what failed, by how that is called."""
    return dict(sorted(Counter(m.status for m in read.measurements if m.status != OK).items()))


def untimed(read: Reading) -> list[ImportedMeasurement]:
    """Return the measurements with a time but no step time, from which nothing is predicted."""
    return [m for m in read.measurements if m.status == OK and m["step_time_s"] is None]


def _refuse_emptying(read: Reading, *, is_replacing: bool) -> None:
    if is_replacing and not read.measurements:
        expected = "at least one row to replace the origin by; `farm origins --remove` removes it"
        raise InvalidSpec("--replace", "a table without rows", expected)


def _refuse_mixing(session: Session, source: ImportSource) -> None:
    """A study and a sweep of another farm are origins of their own; tables may share one.

    Samples of two farms may have the same numbers, and one of them would be left out.
    """
    present = source_of(session, source.origin)
    if present is None or present == source.name:
        return
    if not (present.startswith(_TABLE) and source.name.startswith(_TABLE)):
        expected = (
            f"an origin that does not hold {present} already: take another name, or "
            "`farm origins --remove` it"
        )
        raise InvalidSpec("origin", source.origin, expected)
