"""The steps of one rank for charts: all steps of a short run, a selection of a long one.

Step times are stored compressed, one row for each second. A day of them is 80 MB, which takes a
fifth of a second to read and seconds to unpack. Some hundred rows, looked up one by one by their
keys, are as much as a chart can show.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session, aliased

from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.result_tables import StepChunk
from farm.store.series.series import unpacked
from farm.values.ranges import LEAST_TIME_S, MOST_TIME_S

# What is unpacked, sorted and drawn in some hundredths of a second.
_MOST_CHUNKS = 2000
_MOST_STEPS = 20_000
_MOST_STEPS_OF_CHOICE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """The steps from one chosen row of the store to the next, described by the first row.

    `typical_s`: the median of the row's own steps. `long_s`: their 95th percentile, or the mean of
    the whole range if that is more, as where it stood still for a while.
    """

    kind: StepKind
    first_step: int
    step_count: int
    begun_s: float
    typical_s: float
    long_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeries:
    """`chunks`: all steps of a short run, else an even choice of them, beside all `ranges`."""

    chunks: Sequence[StepTimes]
    ranges: Sequence[StepRange] = ()

    @property
    def is_complete(self) -> bool:
        """Whether `chunks` has every step."""
        return not self.ranges


def step_series(
    session: Session,
    token: int,
    *,
    rank: int,
    max_ranges: int,
    first_step: int = 0,
    last_step: int | None = None,
) -> StepSeries:
    """Return one rank's steps in order; many of them in about `max_ranges` ranges at most.

    `first_step` and `last_step`: of what was reported together only what begins between them.
    """
    which = _which(StepChunk, token, rank, first_step, last_step)
    counts = session.scalars(
        select(StepChunk.step_count)
        .where(*which)
        .order_by(StepChunk.first_step)
        .limit(_MOST_CHUNKS + 1)
    ).all()
    if len(counts) <= _MOST_CHUNKS and sum(counts) <= _MOST_STEPS:
        return StepSeries(chunks=_chunks(session, which))
    first, last = _ends(session, which)
    width = -((first - last - 1) // max_ranges)
    later = aliased(StepChunk)
    places = _places(which, later, _which(later, token, rank, first_step, last_step), width=width)
    # Or the warm-up would seem to last until the second place.
    timed = (
        select(func.min(StepChunk.first_step))
        .where(*which, StepChunk.kind == StepKind.TIMED)
        .scalar_subquery()
    )
    rows = session.execute(
        select(
            StepChunk.kind,
            StepChunk.first_step,
            StepChunk.step_count,
            StepChunk.begun_s,
            StepChunk.median_s,
            StepChunk.p95_s,
        )
        .where(*which, or_(StepChunk.first_step.in_(places), StepChunk.first_step == timed))
        .order_by(StepChunk.first_step)
    ).all()
    # Every row is unpacked, every second and so on.
    each = max(1, -(-sum(row.step_count for row in rows) // _MOST_STEPS_OF_CHOICE))
    some = StepChunk.first_step.in_([row.first_step for row in rows[::each]])
    return StepSeries(chunks=_chunks(session, [*which, some]), ranges=_ranges(rows))


def steps_within(
    session: Session,
    token: int,
    series: StepSeries,
    *,
    rank: int,
    max_ranges: int,
    from_s: float,
    to_s: float | None,
) -> StepSeries:
    """Return the part of a rank's `series` between two seconds after go, and a little around it.

    The ranges that are known tell which steps to look up: by seconds there is no key.
    """
    end_s = math.inf if to_s is None else to_s
    if series.is_complete:
        inside = [c for c in series.chunks if c.begun_s <= end_s]
        return StepSeries(chunks=[c for c in inside if c.begun_s + sum(c.times_s) >= from_s])
    begins_s = [one.begun_s for one in series.ranges]
    begin = max(0, bisect.bisect_right(begins_s, from_s) - 1)
    end = bisect.bisect_right(begins_s, end_s)
    return step_series(
        session,
        token,
        rank=rank,
        max_ranges=max_ranges,
        first_step=series.ranges[begin].first_step,
        last_step=series.ranges[end].first_step if end < len(begins_s) else None,
    )


def _which(
    table: Any, token: int, rank: int, first_step: int, last_step: int | None
) -> list[ColumnElement[bool]]:
    # A chart of an agent shows the first of its ranks.
    which = [table.attempt_id == token, table.rank == rank, table.process == 0]
    which.append(table.first_step >= first_step)
    # Earlier versions stored whatever times agents reported; their sums may be infinite.
    which.append(table.begun_s.between(0.0, MOST_TIME_S))
    which += [t.between(LEAST_TIME_S, MOST_TIME_S) for t in (table.median_s, table.p95_s)]
    if last_step is not None:
        which.append(table.first_step <= last_step)
    return which


def _ends(session: Session, which: Sequence[ColumnElement[bool]]) -> tuple[int, int]:
    """Return the first steps of the first and of the last row; there are some."""
    low = select(func.min(StepChunk.first_step)).where(*which).scalar_subquery()
    high = select(func.max(StepChunk.first_step)).where(*which).scalar_subquery()
    first, last = session.execute(select(low, high)).one()
    return first, last


def _places(
    which: Sequence[ColumnElement[bool]],
    later: Any,
    which_later: Sequence[ColumnElement[bool]],
    *,
    width: int,
) -> Any:
    """Return a query for the first steps of rows at least `width` steps apart.

    Each is found by a look into the key, from the one before it; to group all rows would read them.
    """
    begin = select(func.min(StepChunk.first_step).label("place")).where(*which)
    places = begin.cte("places", recursive=True)
    following = (
        select(func.min(later.first_step))
        .where(*which_later, later.first_step >= places.c.place + width)
        .scalar_subquery()
    )
    places = places.union_all(select(following).where(places.c.place.is_not(None)))
    return select(places.c.place).where(places.c.place.is_not(None))


def _ranges(rows: Sequence[Any]) -> list[StepRange]:
    ranges = []
    for row, after in itertools.zip_longest(rows, rows[1:]):
        count, long_s = row.step_count, row.p95_s
        # What follows a row of another kind is not known to be of this one's.
        if after is not None and after.kind is row.kind:
            count = after.first_step - row.first_step
            long_s = max(long_s, (after.begun_s - row.begun_s) / count)
        ranges.append(
            StepRange(
                kind=row.kind,
                first_step=row.first_step,
                step_count=count,
                begun_s=row.begun_s,
                typical_s=row.median_s,
                long_s=long_s,
            )
        )
    return ranges


def _chunks(session: Session, which: Sequence[ColumnElement[bool]]) -> list[StepTimes]:
    rows = session.execute(
        select(
            StepChunk.process,
            StepChunk.kind,
            StepChunk.first_step,
            StepChunk.begun_s,
            StepChunk.step_count,
            StepChunk.times,
        )
        .where(*which)
        .order_by(StepChunk.first_step)
    )
    chunks = (unpacked(row) for row in rows)
    return [
        chunk
        for chunk in chunks
        if min(chunk.times_s) >= LEAST_TIME_S and max(chunk.times_s) <= MOST_TIME_S
    ]
