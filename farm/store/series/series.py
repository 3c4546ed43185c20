"""Series: samples, step times and epochs of the ranks of one attempt.

Everything is stored at most once: a repeated report changes nothing.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec, NotFound
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import Epoch
from farm.statistics import quantile
from farm.store.engine import POSTGRESQL, insert_into
from farm.store.result_tables import EpochRow, SampleRow, StepChunk
from farm.store.series.sample_ranges import extent, ranks_there, stored_span
from farm.store.series.samples import (
    SAMPLE_METRICS,
    VALUES,
    WHOLE_METRICS,
    array_text,
    plausible,
)
from farm.store.tables import AttemptRow

_ROWS_AT_ONCE = 10_000
_OF_EPOCH = tuple(field.name for field in dataclasses.fields(Epoch))
# What each column of a chunk of step times is to PostgreSQL.
_CHUNK_KINDS = {
    "attempt_id": "bigint",
    "rank": "integer",
    "process": "integer",
    "first_step": "integer",
    "kind": "text",
    "begun_s": "double precision",
    "step_count": "integer",
    "median_s": "double precision",
    "p95_s": "double precision",
    "times": "bytea",
}
_CHUNK_TEXTS = frozenset({"kind", "times"})
_INSERT_CHUNKS = (
    f"INSERT INTO {StepChunk.__tablename__} ({', '.join(_CHUNK_KINDS)}) SELECT * "  # noqa: S608 (names of our own)
    f"FROM unnest({', '.join(f'%s::{kind}[]' for kind in _CHUNK_KINDS.values())}) "
    "ON CONFLICT DO NOTHING"
)


def insert_chunks(session: Session, chunks: Iterable[tuple[int, int, StepTimes]]) -> None:
    """Store consecutive step times, compressed, each chunk with its token and rank.

    A chunk without a step says nothing.
    """
    rows = [_chunk_row(*chunk) for chunk in chunks if chunk[2].times_s]
    if not rows:
        return
    connection = session.connection()
    # A chunk is small and comes once a second from every rank, so what one statement costs is what
    # counts: PostgreSQL gets all chunks of some batches with one, an array for each column.
    if connection.dialect.name == POSTGRESQL:
        arrays = [
            list(values) if name in _CHUNK_TEXTS else array_text(values)
            for name, values in zip(_CHUNK_KINDS, zip(*rows, strict=True), strict=True)
        ]
        connection.exec_driver_sql(_INSERT_CHUNKS, tuple(arrays))
    else:
        named = [dict(zip(_CHUNK_KINDS, row, strict=True)) for row in rows]
        connection.execute(sqlite.insert(StepChunk).on_conflict_do_nothing(), named)


def _chunk_row(token: int, rank: int, steps: StepTimes) -> tuple[object, ...]:
    """Return a chunk's values in the order of `_CHUNK_KINDS`."""
    ordered = sorted(steps.times_s)
    middle, late = quantile(ordered, 0.5), quantile(ordered, 0.95)
    times = zlib.compress(struct.pack(f"<{len(ordered)}d", *steps.times_s))
    position = (token, rank, steps.process, steps.first_step)
    return (*position, steps.kind.value, steps.begun_s, len(ordered), middle, late, times)


def insert_epochs(session: Session, epochs: Sequence[tuple[int, int, Epoch]]) -> None:
    """Store passes over the training set, each with its token and rank."""
    if not epochs:
        return
    rows = [
        {"attempt_id": token, "rank": rank, **{name: getattr(epoch, name) for name in _OF_EPOCH}}
        for token, rank, epoch in epochs
    ]
    session.connection().execute(insert_into(session, EpochRow).on_conflict_do_nothing(), rows)


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
    attempt = session.get(AttemptRow, token)
    if attempt is None:
        raise NotFound(f"attempt {token} does not exist")
    # The day comes first in the key: without it every day's partition would be searched.
    which = [SampleRow.day == attempt.leased_at.date(), SampleRow.attempt_id == token]
    if rank is not None:
        which.append(SampleRow.rank == rank)
    width, span = 1, 1
    if max_points is not None:
        width, span = _range_width(session, attempt, rank, max_points)
    if width == 1:
        return whole_series(session, which).get(token, {})
    series: dict[int, list[Sample]] = {}
    for member, sample in _thinned(session, which, width, span=span):
        series.setdefault(member, []).append(sample)
    return series


def whole_series(
    session: Session, which: Sequence[ColumnElement[bool]], *, most: int | None = None
) -> dict[int, dict[int, list[Sample]]]:
    """Return token to rank to samples by tick, of all rows that meet the conditions.

    One finished gang may have hundreds of thousands of them.

    Raises:
        InvalidSpec: there are more than `most` rows.
    """
    columns = [getattr(SampleRow, name) for name in (*VALUES, "extra")]
    rows = session.execute(
        select(SampleRow.attempt_id, SampleRow.rank, *columns)
        .where(*which)
        .order_by(SampleRow.attempt_id, SampleRow.rank, SampleRow.tick)
        .limit(None if most is None else most + 1)
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    found: dict[int, dict[int, list[Sample]]] = {}
    for count, (token, rank, *values, extra) in enumerate(rows):
        if count == most:
            rows.close()
            raise InvalidSpec("samples", f"more than {most}", f"at most {most} of all ranks")
        sample = Sample(**dict(zip(VALUES, values, strict=True)), extra=extra or {})
        found.setdefault(token, {}).setdefault(rank, []).append(sample)
    return found


def steps_of(session: Session, token: int, *, rank: int) -> list[StepTimes]:
    """Return the chunks of step times of an agent's first rank in order."""
    return steps_by_rank(session, token, rank=rank).get(rank, [])


def steps_by_rank(
    session: Session, token: int, *, rank: int | None = None
) -> dict[int, list[StepTimes]]:
    """Return agent to chunks of its first rank's step times in order, of every agent or of one."""
    query = select(StepChunk).where(StepChunk.attempt_id == token, StepChunk.process == 0)
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
        process=chunk.process,
        kind=chunk.kind,
        first_step=chunk.first_step,
        begun_s=chunk.begun_s,
        times_s=times_s,
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
    return [epoch_of(row) for row in reversed(session.scalars(query).all())]


def epochs_by_rank(
    session: Session, token: int, *, rank: int | None = None
) -> dict[int, list[Epoch]]:
    """Return rank to epochs in order, of every rank or of one."""
    query = select(EpochRow).where(EpochRow.attempt_id == token)
    if rank is not None:
        query = query.where(EpochRow.rank == rank)
    series: dict[int, list[Epoch]] = {}
    for row in session.scalars(query.order_by(EpochRow.rank, EpochRow.epoch)):
        series.setdefault(row.rank, []).append(epoch_of(row))
    return series


def epoch_of(row: EpochRow) -> Epoch:
    """Return a stored epoch as it was reported."""
    return Epoch(**{f.name: getattr(row, f.name) for f in dataclasses.fields(Epoch)})


def _range_width(
    session: Session, attempt: AttemptRow, rank: int | None, max_points: int
) -> tuple[int, int]:
    """Return the ticks of a range, and those of the longest row, of which it is a multiple."""
    found = extent(session, attempt, ranks_there(session, attempt) if rank is None else [rank])
    if found is None:
        return 1, 1
    span = stored_span(session, attempt)
    width = -((found[0] - span - found[1]) // max_points)
    return -(-width // span) * span, span


def _thinned(
    session: Session, which: Sequence[ColumnElement[bool]], width: int, *, span: int
) -> Iterator[tuple[int, Sample]]:
    begin = (SampleRow.tick - SampleRow.tick % width).label("tick")
    columns: list[ColumnElement[Any]] = [
        begin,
        *(_mean(name, span=span).label(name) for name in SAMPLE_METRICS),
    ]
    extras = _extras(session, which, width)
    rows = session.execute(
        select(SampleRow.rank, *columns)
        .where(*which)
        .group_by(SampleRow.rank, begin)
        .order_by(SampleRow.rank, begin)
    )
    for rank, tick, *values in rows:
        metrics = dict(zip(SAMPLE_METRICS, values, strict=True))
        for name in WHOLE_METRICS:
            metrics[name] = None if metrics[name] is None else round(metrics[name])
        yield rank, Sample(tick=tick, **metrics, extra=extras.get((rank, tick), {}))


def _mean(name: str, *, span: int) -> ColumnElement[Any]:
    """Weigh each row by the ticks it stands for; where it was not measured it has no weight."""
    metric = plausible(name)
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
