"""Samples: stored as fast as each database takes them, and read page by page.

Nearly all stored rows are samples, and SQLAlchemy's usual way, with a dictionary for each row and a
processor for each value, costs more than the database. So each database gets its fastest form:
SQLite tuples for one prepared statement, PostgreSQL one array for each column.

A page begins after the last row of the previous page, so no transaction outlasts one page, and a
slow client holds none. Samples of other farms belong to an imported origin and are removed with it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa
from sqlalchemy import ColumnElement, case
from sqlalchemy.orm import Session

from farm.messages.reports import Sample
from farm.store.engine import POSTGRESQL, insert_into
from farm.store.result_tables import ImportedSampleRow, MeasurementRow, SampleRow
from farm.store.tables import AttemptRow, JobRow

SAMPLE_METRICS = tuple(
    field.name for field in dataclasses.fields(Sample) if field.name not in ("tick", "extra")
)
WHOLE_METRICS = frozenset({"memory_used_bytes", "resident_bytes"})
VALUES = ("tick", *SAMPLE_METRICS)
_NAMES = ("day", "attempt_id", "rank", *VALUES)
_values_of = operator.attrgetter(*VALUES)
_HINTS = get_type_hints(Sample, include_extras=True)


# `span_ticks`: how many seconds a row is the mean of, `tick` the last of them. `extra`: the text of
# a JSON object of further metrics; None: there are none.
SAMPLE_COLUMNS = ("rank", *VALUES, "span_ticks", "extra")
WHOLE_COLUMNS = frozenset({*WHOLE_METRICS, "rank", "tick", "span_ticks"})
_ATTEMPTS_AT_ONCE = 500
_IMPORTED = ImportedSampleRow.__table__
_IMPORTED_KEY = (_IMPORTED.c.attempt_id, _IMPORTED.c.rank, _IMPORTED.c.tick)
_IMPORTED_COLUMNS = ("job_id", "attempt_id", *SAMPLE_COLUMNS)


def plausible(name: str) -> ColumnElement[Any]:
    """Return a metric's column, NULL for stored values beyond the metric's range.

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
    """Store samples of any number of ranks with one statement; existing rows are kept."""
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
    kinds |= dict.fromkeys(WHOLE_METRICS, "bigint")
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


@dataclass(frozen=True, slots=True)
class SamplePosition:
    """A row of an attempt; rows are ordered by it."""

    rank: int
    tick: int


@dataclass(frozen=True, slots=True)
class SamplePage:
    """`columns`: the values of each of SAMPLE_COLUMNS, all of the same length, by rank and tick.

    `last`: where the page after it begins; None: this is the last one.
    """

    columns: Sequence[Sequence[Any]]
    last: SamplePosition | None


def sample_page(
    session: Session,
    attempt: AttemptRow,
    *,
    most: int,
    rank: int | None = None,
    after: SamplePosition | None = None,
) -> SamplePage:
    """Return at most `most` rows of an attempt, of every rank or of one, behind a position."""
    columns = [getattr(SampleRow, name) for name in SAMPLE_COLUMNS[:-1]]
    extra = sa.cast(SampleRow.extra, sa.Text)  # a client parses what it needs of it
    # The day comes first in the key: without it every day's partition would be searched.
    which = [SampleRow.day == attempt.leased_at.date(), SampleRow.attempt_id == attempt.id]
    if rank is not None:
        which.append(SampleRow.rank == rank)
    if after is not None:
        which.append(sa.tuple_(SampleRow.rank, SampleRow.tick) > (after.rank, after.tick))
    query = sa.select(*columns, extra).where(*which).order_by(SampleRow.rank, SampleRow.tick)
    # Without the session's own layer over rows, a fifth of the time.
    rows = session.connection().execute(query.limit(most + 1)).all()
    shown = rows[:most]
    last = SamplePosition(shown[-1].rank, shown[-1].tick) if len(rows) > most else None
    return SamplePage(
        columns=list(zip(*shown, strict=True)) or [()] * len(SAMPLE_COLUMNS), last=last
    )


def sweep_sample_pages(
    session: Session, sweep_id: int, *, most: int
) -> Iterator[tuple[AttemptRow, SamplePage]]:
    """Yield all samples of a sweep, by attempt, in pages of at most `most` rows.

    Attempts without samples are left out.
    """
    last_id = 0
    while True:
        attempts = session.scalars(
            sa.select(AttemptRow)
            .join(JobRow, JobRow.id == AttemptRow.job_id)
            .where(JobRow.sweep_id == sweep_id, AttemptRow.id > last_id)
            .order_by(AttemptRow.id)
            .limit(_ATTEMPTS_AT_ONCE)
        ).all()
        if not attempts:
            return
        for attempt in attempts:
            after, has_more = None, True
            while has_more:
                page = sample_page(session, attempt, most=most, after=after)
                if page.columns[0]:
                    yield attempt, page
                after, has_more = page.last, page.last is not None
        last_id = attempts[-1].id


def add_samples(session: Session, origin: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store samples by the columns of the table; existing rows are kept."""
    statement = insert_into(session, ImportedSampleRow).on_conflict_do_nothing()
    session.connection().execute(statement, [{**row, "origin": origin} for row in rows])


def remove_samples(session: Session, origin: str) -> None:
    """Remove all samples of an origin."""
    session.execute(sa.delete(ImportedSampleRow).where(ImportedSampleRow.origin == origin))


def is_of_old_import(before: dt.datetime) -> sa.ColumnElement[bool]:
    """Samples of origins to which nothing was imported since an instant."""
    last_at = sa.func.max(MeasurementRow.created_at)
    old = sa.select(MeasurementRow.origin).group_by(MeasurementRow.origin).having(last_at < before)
    return _IMPORTED.c.origin.in_(old)


def has_samples(session: Session, origin: str) -> bool:
    """Whether the store has a sample of an origin."""
    return bool(session.scalar(sa.select(sa.exists().where(_IMPORTED.c.origin == origin))))


def origin_samples(
    session: Session, origin: str, *, most: int
) -> Iterator[list[dict[str, object]]]:
    """Yield the samples of an origin by attempt, rank and tick, at most `most` rows at once."""
    columns = [_IMPORTED.c[name] for name in _IMPORTED_COLUMNS[:-1]]
    extra = sa.cast(_IMPORTED.c.extra, sa.Text)
    query = (
        sa.select(*columns, extra)
        .where(_IMPORTED.c.origin == origin)
        .order_by(*_IMPORTED_KEY)
        .limit(most)
    )
    after: tuple[Any, ...] | None = None
    while True:
        behind = query if after is None else query.where(sa.tuple_(*_IMPORTED_KEY) > after)
        rows = [dict(zip(_IMPORTED_COLUMNS, row, strict=True)) for row in session.execute(behind)]
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][column.name] for column in _IMPORTED_KEY)
