"""Inserts step times, as fast as each database takes them.

A chunk is small and comes once a second from every rank, so what one statement costs is what
counts. PostgreSQL gets all chunks of some batches with one, an array for each column.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from farm.messages.reports import StepTimes
from farm.statistics.means import quantile
from farm.store.engine import POSTGRESQL
from farm.store.result_tables import StepChunk
from farm.store.series.sample_rows import array_text

# What each column is to PostgreSQL.
_KINDS = {
    "attempt_id": "bigint",
    "rank": "integer",
    "first_step": "integer",
    "kind": "text",
    "begun_s": "double precision",
    "step_count": "integer",
    "median_s": "double precision",
    "p95_s": "double precision",
    "times": "bytea",
}
_TEXTS = frozenset({"kind", "times"})
_INSERT_OF_ARRAYS = (
    f"INSERT INTO {StepChunk.__tablename__} ({', '.join(_KINDS)}) SELECT * "  # noqa: S608 (names of our own)
    f"FROM unnest({', '.join(f'%s::{kind}[]' for kind in _KINDS.values())}) "
    "ON CONFLICT DO NOTHING"
)


def insert_steps(session: Session, *, token: int, rank: int, steps: StepTimes) -> None:
    """Store consecutive step times, compressed; a chunk without a step says nothing."""
    insert_chunks(session, [(token, rank, steps)])


def insert_chunks(session: Session, chunks: Iterable[tuple[int, int, StepTimes]]) -> None:
    """Store chunks of step times, each with its token and rank, as `insert_steps` does one."""
    rows = [_row(*chunk) for chunk in chunks if chunk[2].times_s]
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name == POSTGRESQL:
        arrays = [
            list(values) if name in _TEXTS else array_text(values)
            for name, values in zip(_KINDS, zip(*rows, strict=True), strict=True)
        ]
        connection.exec_driver_sql(_INSERT_OF_ARRAYS, tuple(arrays))
    else:
        named = [dict(zip(_KINDS, row, strict=True)) for row in rows]
        connection.execute(sqlite.insert(StepChunk).on_conflict_do_nothing(), named)


def _row(token: int, rank: int, steps: StepTimes) -> tuple[object, ...]:
    """Return a chunk's values in the order of `_KINDS`."""
    ordered = sorted(steps.times_s)
    middle, late = quantile(ordered, 0.5), quantile(ordered, 0.95)
    times = zlib.compress(struct.pack(f"<{len(ordered)}d", *steps.times_s))
    position = (token, rank, steps.first_step, steps.kind.value, steps.begun_s)
    return (*position, len(ordered), middle, late, times)
