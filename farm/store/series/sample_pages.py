"""Pages of the stored samples of an attempt, unthinned, for clients that read them all.

A page begins behind the last row of the page before it, so that no transaction outlasts one page
and a slow client holds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.store.result_tables import SampleRow
from farm.store.series.sample_rows import VALUES, WHOLE
from farm.store.tables import AttemptRow, JobRow

# `span_ticks`: how many seconds a row is the mean of, `tick` the last of them. `extra`: the text of
# a JSON object of further metrics; None: there are none.
COLUMNS = ("rank", *VALUES, "span_ticks", "extra")
WHOLE_COLUMNS = frozenset({*WHOLE, "rank", "tick", "span_ticks"})
_ATTEMPTS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class SamplePosition:
    """A row of an attempt; rows are ordered by it."""

    rank: int
    tick: int


@dataclass(frozen=True, slots=True)
class SamplePage:
    """`columns`: the values of each of COLUMNS, all of the same length, by rank and tick.

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
    columns = [getattr(SampleRow, name) for name in COLUMNS[:-1]]
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
    return SamplePage(columns=list(zip(*shown, strict=True)) or [()] * len(COLUMNS), last=last)


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
