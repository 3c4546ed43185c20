"""Series: samples, step times and epochs of the ranks of one attempt.

Everything is stored at most once: the same report again changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Row, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from farm.core.measurement import quantile
from farm.core.reports import Sample, StepTimes
from farm.core.trainer_lines import Epoch
from farm.errors import NotFound
from farm.store.base import Table
from farm.store.engine import POSTGRESQL
from farm.store.result_tables import EpochRow, SampleRow, StepChunk
from farm.store.tables import Attempt

_METRICS = tuple(
    field.name for field in dataclasses.fields(Sample) if field.name not in ("tick", "extra")
)
_WHOLE = frozenset({"memory_used_bytes", "resident_bytes"})


def insert_samples(
    session: Session, *, day: dt.date, token: int, rank: int, samples: Sequence[Sample]
) -> None:
    """Store samples of one rank; `day` is the UTC date at which the attempt was leased."""
    rows = [
        {
            "day": day,
            "attempt_id": token,
            "rank": rank,
            "tick": sample.tick,
            **{name: getattr(sample, name) for name in _METRICS},
            "extra": sample.extra or None,
        }
        for sample in samples
    ]
    _insert_new(session, SampleRow, rows)


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
    by its first tick and, for each metric, the mean of what was measured in it; `extra` is that
    of its first tick alone.

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
    width = 1 if max_points is None else _range_width(session, which, max_points)
    series: dict[int, list[Sample]] = {}
    rows = _plain(session, which) if width == 1 else _thinned(session, which, width)
    extras = _extras(session, which, width)
    for row in rows:
        series.setdefault(row.rank, []).append(_sample(row, extras.get((row.rank, row.tick), {})))
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
        times_s = struct.unpack(f"<{chunk.step_count}d", zlib.decompress(chunk.times))
        steps = StepTimes(
            kind=chunk.kind, first_step=chunk.first_step, begun_s=chunk.begun_s, times_s=times_s
        )
        series.setdefault(chunk.rank, []).append(steps)
    return series


def epochs_of(session: Session, token: int, *, rank: int) -> list[Epoch]:
    """Return one rank's epochs in order."""
    return epochs_by_rank(session, token, rank=rank).get(rank, [])


def epochs_by_rank(
    session: Session, token: int, *, rank: int | None = None
) -> dict[int, list[Epoch]]:
    """Return rank to epochs in order, of every rank or of one."""
    query = select(EpochRow).where(EpochRow.attempt_id == token)
    if rank is not None:
        query = query.where(EpochRow.rank == rank)
    series: dict[int, list[Epoch]] = {}
    for row in session.scalars(query.order_by(EpochRow.rank, EpochRow.epoch)):
        epoch = Epoch(**{f.name: getattr(row, f.name) for f in dataclasses.fields(Epoch)})
        series.setdefault(row.rank, []).append(epoch)
    return series


def _insert_new(session: Session, table: type[Table], rows: list[dict[str, Any]]) -> None:
    """Insert rows whose key is new. One prepared statement for all: VALUES lists are slow."""
    if not rows:
        return
    connection = session.connection()
    dialect = postgresql if connection.dialect.name == POSTGRESQL else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


def _range_width(session: Session, which: Sequence[ColumnElement[bool]], max_points: int) -> int:
    first, last = session.execute(
        select(func.min(SampleRow.tick), func.max(SampleRow.tick)).where(*which)
    ).one()
    return 1 if first is None else -((first - last - 1) // max_points)


def _plain(session: Session, which: Sequence[ColumnElement[bool]]) -> Sequence[Row[Any]]:
    metrics = [getattr(SampleRow, name) for name in _METRICS]
    return session.execute(
        select(SampleRow.rank, SampleRow.tick, *metrics)
        .where(*which)
        .order_by(SampleRow.rank, SampleRow.tick)
    ).all()


def _thinned(
    session: Session, which: Sequence[ColumnElement[bool]], width: int
) -> Sequence[Row[Any]]:
    begin = (SampleRow.tick - SampleRow.tick % width).label("tick")
    means: list[sa.Label[float]] = [
        func.avg(getattr(SampleRow, name), type_=sa.Double()).label(name) for name in _METRICS
    ]
    columns: list[ColumnElement[Any]] = [begin, *means]
    return session.execute(
        select(SampleRow.rank, *columns)
        .where(*which)
        .group_by(SampleRow.rank, begin)
        .order_by(SampleRow.rank, begin)
    ).all()


def _extras(
    session: Session, which: Sequence[ColumnElement[bool]], width: int
) -> dict[tuple[int, int], dict[str, float]]:
    """Return (rank, tick) to the optional metrics of each range's first tick.

    Asked for apart: joined to the means, PostgreSQL without statistics took seconds.
    """
    rows = session.execute(
        select(SampleRow.rank, SampleRow.tick, SampleRow.extra).where(
            *which, SampleRow.tick % width == 0, SampleRow.extra.is_not(None)
        )
    )
    return {(rank, tick): extra for rank, tick, extra in rows if extra}


def _sample(row: Row[Any], extra: dict[str, float]) -> Sample:
    values = row._mapping
    metrics = {
        name: round(values[name]) if name in _WHOLE and values[name] is not None else values[name]
        for name in _METRICS
    }
    return Sample(tick=row.tick, extra=extra, **metrics)
