"""Inserts samples, as fast as each database takes them.

Nearly all that is stored are samples, and SQLAlchemy's own way, a dictionary for a row and a
processor for a value, costs more than the databases do. So each is given what it takes fastest:
SQLite tuples for one prepared statement, PostgreSQL one array for each column.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from sqlalchemy import ColumnElement, case
from sqlalchemy.orm import Session

from farm.messages.reports import Sample
from farm.store.engine import POSTGRESQL
from farm.store.result_tables import SampleRow

METRICS = tuple(
    field.name for field in dataclasses.fields(Sample) if field.name not in ("tick", "extra")
)
WHOLE = frozenset({"memory_used_bytes", "resident_bytes"})
VALUES = ("tick", *METRICS)
_NAMES = ("day", "attempt_id", "rank", *VALUES)
_values_of = operator.attrgetter(*VALUES)
_HINTS = get_type_hints(Sample, include_extras=True)


def plausible(name: str) -> ColumnElement[Any]:
    """Return a metric's column, NULL where what is stored is beyond the metric's range.

    Earlier versions stored whatever agents reported; a mean of such numbers may be infinite.
    """
    [annotated] = [kind for kind in get_args(_HINTS[name]) if kind is not type(None)]
    _, bound = get_args(annotated)
    column: ColumnElement[Any] = getattr(SampleRow, name)
    return case((column.between(bound.low, bound.high), column)).label(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSeries:
    """Samples of one rank; `day` is the UTC date at which the attempt was leased."""

    day: dt.date
    token: int
    rank: int
    samples: Sequence[Sample]


def insert_series(session: Session, series: Sequence[SampleSeries]) -> None:
    """Store samples of any number of ranks with one statement; what is there already stays."""
    rows = []
    for part in series:
        key = (part.day.isoformat(), part.token, part.rank)
        for sample in part.samples:
            extra = json.dumps(sample.extra) if sample.extra else None
            rows.append((*key, *_values_of(sample), extra))
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name == POSTGRESQL:
        days, *columns, extras = zip(*rows, strict=True)
        arrays = [array_text(days, written=str), *map(array_text, columns), list(extras)]
        connection.exec_driver_sql(_insert_of_arrays(), tuple(arrays))
    else:
        connection.exec_driver_sql(_insert_of_rows(), rows)


@functools.cache
def _insert_of_rows() -> str:
    columns = (*_NAMES, "extra")
    marks = ", ".join("?" * len(columns))
    return (
        f"INSERT INTO {SampleRow.__tablename__} ({', '.join(columns)}) VALUES ({marks}) "  # noqa: S608 (names of our own)
        "ON CONFLICT DO NOTHING"
    )


@functools.cache
def _insert_of_arrays() -> str:
    kinds = {"day": "date", "attempt_id": "bigint", "rank": "integer", "tick": "integer"}
    kinds |= dict.fromkeys(WHOLE, "bigint")
    arrays = [f"%s::{kinds.get(name, 'double precision')}[]" for name in _NAMES]
    return (
        f"INSERT INTO {SampleRow.__tablename__} ({', '.join(_NAMES)}, extra) "  # noqa: S608 (names of our own)
        f"SELECT {', '.join(f'r.{name}' for name in _NAMES)}, r.extra::json "
        f"FROM unnest({', '.join(arrays)}, %s::text[]) AS r ({', '.join(_NAMES)}, extra) "
        "ON CONFLICT DO NOTHING"
    )


def array_text(values: Iterable[object], *, written: Callable[[object], str] = repr) -> str:
    """Write numbers as PostgreSQL reads an array; psycopg's own way takes three times as long."""
    return "{" + ",".join(["NULL" if value is None else written(value) for value in values]) + "}"
