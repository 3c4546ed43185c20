"""Series: samples, step times and epochs of the ranks of one attempt.

Everything is stored at most once: the same report again changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import operator
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from farm.core.measurement import quantile
from farm.core.reports import Sample, StepTimes
from farm.core.trainer_lines import Epoch
from farm.errors import NotFound
from farm.store.base import Table
from farm.store.engine import POSTGRESQL
from farm.store.result_tables import EpochRow, SampleRow, StepChunk
from farm.store.sample_ranges import extent, ranks_there, stored_span
from farm.store.tables import Attempt

_METRICS = tuple(
    field.name for field in dataclasses.fields(Sample) if field.name not in ("tick", "extra")
)
_WHOLE = frozenset({"memory_used_bytes", "resident_bytes"})
_VALUES = ("tick", *_METRICS)
_values_of = operator.attrgetter(*_VALUES)


def insert_samples(
    session: Session, *, day: dt.date, token: int, rank: int, samples: Sequence[Sample]
) -> None:
    """Store samples of one rank; `day` is the UTC date at which the attempt was leased.

    Nearly all that is stored are samples, and SQLAlchemy's own way, a dictionary for a row and a
    processor for a value, costs more than the databases do. So each is given what it takes
    fastest: SQLite tuples for one prepared statement, PostgreSQL one array for each column.
    """
    if not samples:
        return
    rows = [_values_of(sample) for sample in samples]
    extras = [json.dumps(sample.extra) if sample.extra else None for sample in samples]
    connection = session.connection()
    if connection.dialect.name == POSTGRESQL:
        arrays = [_array_text(column) for column in zip(*rows, strict=True)]
        connection.exec_driver_sql(_insert_of_arrays(), (day, token, rank, *arrays, extras))
    else:
        key = (day.isoformat(), token, rank)
        values = [(*key, *row, extra) for row, extra in zip(rows, extras, strict=True)]
        connection.exec_driver_sql(_insert_of_rows(), values)


def insert_steps(session: Session, *, token: int, rank: int, steps: StepTimes) -> None:
    """Store consecutive step times, compressed; a chunk without a step says nothing."""
    if not steps.times_s:
        return
    ordered = sorted(steps.times_s)
    row = {
        "attempt_id": token,
        "rank": rank,
        "first_step": steps.first_step,
        "kind": steps.kind,
        "begun_s": steps.begun_s,
        "step_count": len(ordered),
        "median_s": quantile(ordered, 0.5),
        "p95_s": quantile(ordered, 0.95),
        "times": zlib.compress(struct.pack(f"<{len(ordered)}d", *steps.times_s)),
    }
    _insert_new(session, StepChunk, [row])


def insert_epoch(session: Session, *, token: int, rank: int, epoch: Epoch) -> None:
    """Store one pass over the training set."""
    row = {"attempt_id": token, "rank": rank, **dataclasses.asdict(epoch)}
    _insert_new(session, EpochRow, [row])


def samples_of(
    session: Session, token: int, *, rank: int, max_points: int | None = None
) -> list[Sample]:
    """Return one rank's samples by tick, thinned as in `samples_by_rank` if a limit is given.

    Raises:
        NotFound: there is no such attempt.
    """
    return samples_by_rank(session, token, rank=rank, max_points=max_points).get(rank, [])


def samples_by_rank(
    session: Session, token: int, *, rank: int | None = None, max_points: int | None = 2000
) -> dict[int, list[Sample]]:
    """Return rank to samples by tick, of every rank or of one; holes stay holes.

    More than `max_points` ticks (None: no limit) are thinned to equal ranges. A range is given
    by its first tick and, for each metric, the mean over the ticks measured in it; `extra` is that
    of its first row alone. Rows that `farm db prune` thinned come by their last tick, as stored,
    or in ranges that hold whole ones.

    Raises:
        NotFound: there is no such attempt.
    """
    attempt = session.get(Attempt, token)
    if attempt is None:
        raise NotFound(f"attempt {token}: there is none")
    # The day comes first in the key: without it every day's partition would be searched.
    which = [SampleRow.day == attempt.leased_at.date(), SampleRow.attempt_id == token]
    if rank is not None:
        which.append(SampleRow.rank == rank)
    width, span = 1, 1
    if max_points is not None:
        width, span = _range_width(session, attempt, rank, max_points)
    rows = _plain(session, which) if width == 1 else _thinned(session, which, width, span=span)
    series: dict[int, list[Sample]] = {}
    for member, sample in rows:
        series.setdefault(member, []).append(sample)
    return series


def steps_of(session: Session, token: int, *, rank: int) -> list[StepTimes]:
    """Return one rank's chunks of step times in order."""
    return steps_by_rank(session, token, rank=rank).get(rank, [])


def steps_by_rank(
    session: Session, token: int, *, rank: int | None = None
) -> dict[int, list[StepTimes]]:
    """Return rank to chunks of step times in order, of every rank or of one."""
    query = select(StepChunk).where(StepChunk.attempt_id == token)
    if rank is not None:
        query = query.where(StepChunk.rank == rank)
    series: dict[int, list[StepTimes]] = {}
    for chunk in session.scalars(query.order_by(StepChunk.rank, StepChunk.first_step)):
        series.setdefault(chunk.rank, []).append(unpacked(chunk))
    return series


def unpacked(chunk: Any) -> StepTimes:
    """Return a stored chunk, or a row of its columns, as it was reported."""
    times_s = struct.unpack(f"<{chunk.step_count}d", zlib.decompress(chunk.times))
    return StepTimes(
        kind=chunk.kind, first_step=chunk.first_step, begun_s=chunk.begun_s, times_s=times_s
    )


def epochs_of(session: Session, token: int, *, rank: int) -> list[Epoch]:
    """Return one rank's epochs in order."""
    return epochs_by_rank(session, token, rank=rank).get(rank, [])


def last_epochs(session: Session, token: int, *, rank: int, limit: int) -> list[Epoch]:
    """Return one rank's latest epochs in order."""
    query = (
        select(EpochRow)
        .where(EpochRow.attempt_id == token, EpochRow.rank == rank)
        .order_by(EpochRow.epoch.desc())
        .limit(limit)
    )
    return [_epoch(row) for row in reversed(session.scalars(query).all())]


def epochs_by_rank(
    session: Session, token: int, *, rank: int | None = None
) -> dict[int, list[Epoch]]:
    """Return rank to epochs in order, of every rank or of one."""
    query = select(EpochRow).where(EpochRow.attempt_id == token)
    if rank is not None:
        query = query.where(EpochRow.rank == rank)
    series: dict[int, list[Epoch]] = {}
    for row in session.scalars(query.order_by(EpochRow.rank, EpochRow.epoch)):
        series.setdefault(row.rank, []).append(_epoch(row))
    return series


def _epoch(row: EpochRow) -> Epoch:
    return Epoch(**{f.name: getattr(row, f.name) for f in dataclasses.fields(Epoch)})


def _insert_new(session: Session, table: type[Table], rows: list[dict[str, Any]]) -> None:
    """Insert rows whose key is new. One prepared statement for all: VALUES lists are slow."""
    if not rows:
        return
    connection = session.connection()
    dialect = postgresql if connection.dialect.name == POSTGRESQL else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


@functools.cache
def _insert_of_rows() -> str:
    columns = ("day", "attempt_id", "rank", *_VALUES, "extra")
    marks = ", ".join("?" * len(columns))
    return (
        f"INSERT INTO {SampleRow.__tablename__} ({', '.join(columns)}) VALUES ({marks}) "  # noqa: S608 (names of our own)
        "ON CONFLICT DO NOTHING"
    )


@functools.cache
def _insert_of_arrays() -> str:
    kinds = {"tick": "integer", **dict.fromkeys(_WHOLE, "bigint")}
    arrays = [f"%s::{kinds.get(name, 'double precision')}[]" for name in _VALUES]
    return (
        f"INSERT INTO {SampleRow.__tablename__} "  # noqa: S608 (names of our own)
        f"(day, attempt_id, rank, {', '.join(_VALUES)}, extra) "
        f"SELECT %s::date, %s, %s, {', '.join(f'r.{name}' for name in _VALUES)}, r.extra::json "
        f"FROM unnest({', '.join(arrays)}, %s::text[]) AS r ({', '.join(_VALUES)}, extra) "
        "ON CONFLICT DO NOTHING"
    )


def _array_text(values: Iterable[float | None]) -> str:
    """Write numbers as PostgreSQL reads an array; psycopg's own way takes three times as long."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def _range_width(
    session: Session, attempt: Attempt, rank: int | None, max_points: int
) -> tuple[int, int]:
    """Return the ticks of a range, and those of the longest row, of which it is a multiple."""
    found = extent(session, attempt, ranks_there(session, attempt) if rank is None else [rank])
    if found is None:
        return 1, 1
    span = stored_span(session, attempt)
    width = -((found[0] - span - found[1]) // max_points)
    return -(-width // span) * span, span


def _plain(session: Session, which: Sequence[ColumnElement[bool]]) -> Iterator[tuple[int, Sample]]:
    """Yield (rank, sample) of every row. A finished gang has hundreds of thousands of them."""
    columns = [getattr(SampleRow, name) for name in (*_VALUES, "extra")]
    rows = session.execute(
        select(SampleRow.rank, *columns).where(*which).order_by(SampleRow.rank, SampleRow.tick)
    )
    for rank, *values, extra in rows:
        yield rank, Sample(**dict(zip(_VALUES, values, strict=True)), extra=extra or {})


def _thinned(
    session: Session, which: Sequence[ColumnElement[bool]], width: int, *, span: int
) -> Iterator[tuple[int, Sample]]:
    begin = (SampleRow.tick - SampleRow.tick % width).label("tick")
    columns: list[ColumnElement[Any]] = [
        begin,
        *(_mean(name, span=span).label(name) for name in _METRICS),
    ]
    extras = _extras(session, which, width)
    rows = session.execute(
        select(SampleRow.rank, *columns)
        .where(*which)
        .group_by(SampleRow.rank, begin)
        .order_by(SampleRow.rank, begin)
    )
    for rank, tick, *values in rows:
        metrics = dict(zip(_METRICS, values, strict=True))
        for name in _WHOLE:
            metrics[name] = None if metrics[name] is None else round(metrics[name])
        yield rank, Sample(tick=tick, **metrics, extra=extras.get((rank, tick), {}))


def _mean(name: str, *, span: int) -> ColumnElement[Any]:
    """Weigh each row by the ticks it stands for; where it was not measured it has no weight."""
    metric: ColumnElement[Any] = getattr(SampleRow, name)
    if span == 1:
        return func.avg(sa.cast(metric, sa.Double()))
    weight = sa.case((metric.is_not(None), SampleRow.span_ticks))
    # As floats: whole numbers would be divided without a rest, and overflow before.
    return func.sum(sa.cast(metric, sa.Double()) * weight) / func.sum(weight)


def _extras(
    session: Session, which: Sequence[ColumnElement[bool]], width: int
) -> dict[tuple[int, int], dict[str, float]]:
    """Return (rank, tick) to the optional metrics of each range's first tick.

    Asked for apart: joined to the means, PostgreSQL without statistics took seconds.
    """
    begin = SampleRow.tick - SampleRow.span_ticks + 1
    rows = session.execute(
        select(SampleRow.rank, SampleRow.tick, SampleRow.extra).where(
            *which, begin % width == 0, SampleRow.extra.is_not(None)
        )
    )
    return {(rank, tick - tick % width): extra for rank, tick, extra in rows if extra}
