"""Samples of other farms, which belong to an imported origin and are removed with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.store.engine import insert_into
from farm.store.result_tables import ImportedSampleRow, MeasurementRow
from farm.store.series.sample_pages import COLUMNS

_TABLE = ImportedSampleRow.__table__
_KEY = (_TABLE.c.attempt_id, _TABLE.c.rank, _TABLE.c.tick)
_NAMES = ("job_id", "attempt_id", *COLUMNS)


def add_samples(session: Session, origin: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store samples by the columns of the table; what is there already stays."""
    statement = insert_into(session, ImportedSampleRow).on_conflict_do_nothing()
    session.connection().execute(statement, [{**row, "origin": origin} for row in rows])


def remove_samples(session: Session, origin: str) -> None:
    """Remove all samples of an origin."""
    session.execute(sa.delete(_TABLE).where(_TABLE.c.origin == origin))


def is_of_old_import(before: dt.datetime) -> sa.ColumnElement[bool]:
    """Samples of origins to which nothing was imported since an instant."""
    last_at = sa.func.max(MeasurementRow.created_at)
    old = sa.select(MeasurementRow.origin).group_by(MeasurementRow.origin).having(last_at < before)
    return _TABLE.c.origin.in_(old)


def origin_samples(
    session: Session, origin: str, *, most: int
) -> Iterator[list[dict[str, object]]]:
    """Yield the samples of an origin by attempt, rank and tick, at most `most` rows at once."""
    columns = [_TABLE.c[name] for name in _NAMES[:-1]]
    extra = sa.cast(_TABLE.c.extra, sa.Text)
    query = sa.select(*columns, extra).where(_TABLE.c.origin == origin).order_by(*_KEY).limit(most)
    after: tuple[Any, ...] | None = None
    while True:
        behind = query if after is None else query.where(sa.tuple_(*_KEY) > after)
        rows = [dict(zip(_NAMES, row, strict=True)) for row in session.execute(behind)]
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][column.name] for column in _KEY)
