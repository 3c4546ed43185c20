"""Deletes or thins out data that is older than the retention rules allow.

Measurements, step times, epochs and the history of jobs are never deleted, nor is anything of an
attempt that is still active.

The work is divided into transactions of some thousand rows, so collectors can store meanwhile, and
an interruption undoes only the last transaction.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, delete, exc, func, or_, select
from sqlalchemy.orm import Session, aliased

from farm.errors import Unreachable
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.messages.reports import Sample
from farm.store.base import Table
from farm.store.engine import reading, short_writing, writing
from farm.store.maintenance.partitions import drop_partition, is_lock_conflict, partition_days
from farm.store.notifications import FIRST_LOOK, is_old_delivery, is_old_event
from farm.store.reports.late_reports import forget_late_counts, forgotten_late_count
from farm.store.result_tables import ImportedSampleRow, LogPartRow, SampleRow
from farm.store.series.samples import is_of_old_import
from farm.store.tables import (
    AgentRow,
    AttemptRow,
    LateReport,
    NotificationDelivery,
    NotificationEvent,
    SpoolPosition,
)

# Of one transaction: SQLite has one writer at a time, and others wait some hundredths of a second.
_ROWS_AT_ONCE = 5000
_LONG_ROWS_AT_ONCE = 500  # whole batches of samples, or some ten thousand characters of a log
_DROP_TRIES = 5
_METRICS = tuple(field.name for field in dataclasses.fields(Sample))
# Of what is thinned. A mean would hide what memory is judged by: how near it came to the limit.
_PEAKS = ("memory_used_bytes", "resident_bytes")
_MEANS = tuple(name for name in _METRICS if name not in ("tick", "extra", *_PEAKS))

# Told how many rows are done of how many.
ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What to keep. None: for good. Days are whole UTC days, counted from an attempt's lease."""

    drop_after: dt.timedelta | None = None
    thin_after: dt.timedelta | None = None
    thin_to_ticks: int = 10
    drop_late_reports: bool = False  # all that did not count, however new


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeries:
    """Stored samples of one rank of an attempt, from its first to its last tick."""

    day: dt.date
    attempt_id: int
    rank: int
    first_tick: int
    last_tick: int
    row_count: int
    surplus_count: int  # rows that thinning would take away


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What retention would take away now."""

    retention: Retention
    before: dt.datetime | None  # of what is dropped
    late_before: dt.datetime | None  # of the reports that did not count
    notified_before: dt.datetime | None  # of messages
    dropped: tuple[StoredSeries, ...]
    thinned: tuple[StoredSeries, ...]
    partitions: tuple[dt.date, ...]  # dropped whole
    late_report_count: int
    spool_position_count: int
    log_part_count: int
    notification_count: int
    imported_sample_count: int

    @property
    def dropped_sample_count(self) -> int:
        return sum(series.row_count for series in self.dropped)

    @property
    def thinned_sample_count(self) -> int:
        """The number of rows that thinning replaces by means."""
        return sum(series.surplus_count for series in self.thinned)


def plan_prune(engine: sa.Engine, retention: Retention, *, now: dt.datetime) -> PrunePlan:
    """Return what `prune` would do; nothing is changed or locked.

    Raises:
        Unreachable: the database does not answer.
    """
    dropped: list[StoredSeries] = []
    thinned: list[StoredSeries] = []
    partitions: list[dt.date] = []
    late_count = position_count = log_count = notification_count = imported_count = 0
    before = None if retention.drop_after is None else now - retention.drop_after
    notified_before = None if before is None else min(before, now - 2 * FIRST_LOOK)
    with reading(engine) as session:
        if before is not None:
            dropped = _series(session, [SampleRow.day < before.date()])
            leased = select(AttemptRow.leased_at).where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
            held = {at.date() for at in session.scalars(leased)}
            days = partition_days(session)
            partitions = [day for day in days if day < before.date() and day not in held]
            position_count = _count(session, SpoolPosition, _is_forgotten(before))
            log_count = _count(session, LogPartRow, _is_old_log(before))
            imported_count = _count(session, ImportedSampleRow, is_of_old_import(before))
        if notified_before is not None:
            which_notified = is_old_delivery(notified_before)
            notification_count = _count(session, NotificationDelivery, which_notified)
        late_before = now if retention.drop_late_reports else before
        if late_before is not None:
            late_count = _count(session, LateReport, LateReport.received_at < late_before)
            late_count += forgotten_late_count(session, before=late_before)
        if retention.thin_after is not None:
            which = [SampleRow.day < (now - retention.thin_after).date()]
            if before is not None:
                which.append(SampleRow.day >= before.date())
            thinned = _series(session, which, width=retention.thin_to_ticks)
    return PrunePlan(
        retention=retention,
        before=before,
        late_before=late_before,
        notified_before=notified_before,
        dropped=tuple(dropped),
        thinned=tuple(series for series in thinned if series.surplus_count),
        partitions=tuple(partitions),
        late_report_count=late_count,
        spool_position_count=position_count,
        log_part_count=log_count,
        notification_count=notification_count,
        imported_sample_count=imported_count,
    )


def prune(
    engine: sa.Engine, plan: PrunePlan, *, progress: ProgressCallback, drop_tries: int = _DROP_TRIES
) -> None:
    """Carry out a plan. Idempotent.

    `drop_tries`: how often to wait for the lock of a partition that others hold.

    Raises:
        Unreachable: the database does not answer, or others hold a day's partition.
    """
    total = plan.dropped_sample_count + sum(series.row_count for series in plan.thinned)
    done = 0
    for day in plan.partitions:
        _drop_partition(engine, day, tries=drop_tries)
        done += sum(series.row_count for series in plan.dropped if series.day == day)
        progress(done, total)
    if plan.late_before is not None:
        is_late = LateReport.received_at < plan.late_before
        _drop_rows(engine, LateReport, is_late, at_once=_LONG_ROWS_AT_ONCE)
        with writing(engine) as session:
            forget_late_counts(session, before=plan.late_before)
    if plan.before is not None:
        with writing(engine) as session:
            session.execute(delete(SpoolPosition).where(_is_forgotten(plan.before)))
        _drop_rows(engine, LogPartRow, _is_old_log(plan.before), at_once=_LONG_ROWS_AT_ONCE)
        _drop_rows(engine, ImportedSampleRow, is_of_old_import(plan.before))
    if plan.notified_before is not None:
        _drop_rows(engine, NotificationDelivery, is_old_delivery(plan.notified_before))
        _drop_rows(engine, NotificationEvent, is_old_event(plan.notified_before))
    rest = [series for series in plan.dropped if series.day not in plan.partitions]
    for batch in _batches(rest, width=1):
        with short_writing(engine) as session:
            for piece in batch:
                session.execute(delete(SampleRow).where(*piece.which()))
        done += sum(piece.row_count for piece in batch)
        progress(done, total)
    width = plan.retention.thin_to_ticks
    for batch in _batches(plan.thinned, width=width):
        with short_writing(engine) as session:
            for piece in batch:
                _thin(session, piece, width=width)
        done += sum(piece.row_count for piece in batch)
        progress(done, total)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some ticks of a series; `row_count` is at least the number of rows in them."""

    series: StoredSeries
    first_tick: int
    last_tick: int

    @property
    def row_count(self) -> int:
        return min(self.series.row_count, self.last_tick - self.first_tick + 1)

    def which(self) -> tuple[ColumnElement[bool], ...]:
        return (
            SampleRow.day == self.series.day,
            SampleRow.attempt_id == self.series.attempt_id,
            SampleRow.rank == self.series.rank,
            SampleRow.tick.between(self.first_tick, self.last_tick),
        )


def _batches(all_series: Sequence[StoredSeries], *, width: int) -> Iterator[list[_Piece]]:
    """Cut into pieces at multiples of `width`, and pack these for transactions of equal size."""
    length = -(-_ROWS_AT_ONCE // width) * width
    batch: list[_Piece] = []
    for series in all_series:
        begin = series.first_tick - series.first_tick % width
        for first_tick in range(begin, series.last_tick + 1, length):
            batch.append(_Piece(series, first_tick, first_tick + length - 1))
            if sum(piece.row_count for piece in batch) >= _ROWS_AT_ONCE:
                yield batch
                batch = []
    if batch:
        yield batch


def _drop_partition(engine: sa.Engine, day: dt.date, *, tries: int) -> None:
    for _ in range(tries):
        try:
            with writing(engine) as session:
                drop_partition(session, day)
        except exc.OperationalError as error:
            if not is_lock_conflict(error):
                raise
        else:
            return
    raise Unreachable(f"samples of {day} are held by another transaction: run this again later")


def _drop_rows(
    engine: sa.Engine,
    table: type[Table],
    which: ColumnElement[bool],
    *,
    at_once: int = _ROWS_AT_ONCE,
) -> None:
    key = list(table.__table__.primary_key)
    some = select(*key).where(which).limit(at_once)
    drop_some = delete(table).where(sa.tuple_(*key).in_(some))
    count = 1
    while count:
        with short_writing(engine) as session:
            count = session.connection().execute(drop_some).rowcount


def _thin(session: Session, piece: _Piece, *, width: int) -> None:
    # Locked: who prunes at the same time waits, and then finds none of these rows any more.
    rows = session.execute(
        select(SampleRow.__table__).where(*piece.which()).order_by(SampleRow.tick).with_for_update()
    ).all()
    stored = []
    for row in rows:
        values = {name: getattr(row, name) for name in _METRICS}
        sample = Sample(**{**values, "extra": row.extra or {}})
        stored.append(Stretch(sample, row.span_ticks))
    joined = thin(stored, width=width)
    if len(joined) == len(stored):
        return
    session.execute(delete(SampleRow).where(*piece.which()))
    series = piece.series
    key = {"day": series.day, "attempt_id": series.attempt_id, "rank": series.rank}
    session.connection().execute(
        sa.insert(SampleRow.__table__),  # type: ignore[arg-type] # a Table, says the mapper
        [
            {
                **key,
                **{name: getattr(stretch.sample, name) for name in _METRICS},
                "extra": stretch.sample.extra or None,
                "span_ticks": stretch.span_ticks,
            }
            for stretch in joined
        ],
    )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stored sample: of one tick, or of the `span_ticks` ticks that end with its own."""

    sample: Sample
    span_ticks: int = 1


def thin(stretches: Iterable[Stretch], *, width: int) -> list[Stretch]:
    """Join the stretches of one rank, given by tick, whose ticks lie in one range of `width` ticks.

    Ranges begin at multiples of `width`; a stretch belongs to the range of its last tick. Each
    metric becomes the mean of what was measured, weighted by the ticks it stands for, memory the
    largest; what nobody measured stays None. A joined stretch reaches from the first to the last
    tick that it was made of, so a hole at a range's edge stays one. Thinned again with the same
    width nothing changes.
    """
    ranges = itertools.groupby(stretches, key=lambda stretch: stretch.sample.tick // width)
    return [_joined(list(group)) for _, group in ranges]


def _joined(group: Sequence[Stretch]) -> Stretch:
    if len(group) == 1:
        return group[0]
    first, last = group[0], group[-1].sample.tick
    metrics: dict[str, float | None] = {}
    for name in _MEANS:
        metrics[name] = _mean([(getattr(s.sample, name), s.span_ticks) for s in group])
    for name in _PEAKS:
        measured = [value for s in group if (value := getattr(s.sample, name)) is not None]
        metrics[name] = max(measured, default=None)
    names = {name: None for s in group for name in s.sample.extra}
    extra = {
        name: mean
        for name in names
        if (mean := _mean([(s.sample.extra.get(name), s.span_ticks) for s in group])) is not None
    }
    # The names are a sample's own, which the type checker cannot follow.
    sample = Sample(tick=last, extra=extra, **metrics)  # type: ignore[arg-type]
    return Stretch(sample, last - (first.sample.tick - first.span_ticks))


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    measured = [(value, weight) for value, weight in weighted if value is not None]
    if not measured:
        return None
    # The bounds undo rounding: a mean lies between what it is the mean of.
    mean = sum(value * weight for value, weight in measured) / sum(w for _, w in measured)
    values = [value for value, _ in measured]
    return min(max(mean, min(values)), max(values))


def silent_agents(session: Session, *, before: dt.datetime) -> list[str]:
    """Return the agents without a lease that were last heard from before an instant."""
    heard_at = func.coalesce(AgentRow.heartbeat_at, AgentRow.first_seen_at)
    return list(
        session.scalars(
            select(AgentRow.id)
            .where(heard_at < before, AgentRow.attempt_id.is_(None))
            .order_by(AgentRow.id)
        )
    )


def _series(
    session: Session, which: Sequence[ColumnElement[bool]], *, width: int = 1
) -> list[StoredSeries]:
    ranges = func.count(sa.distinct(SampleRow.tick // width))
    key = (SampleRow.day, SampleRow.attempt_id, SampleRow.rank)
    active = select(AttemptRow.id).where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
    rows = session.execute(
        select(
            *key,
            func.min(SampleRow.tick),
            func.max(SampleRow.tick),
            func.count(),
            func.count() - ranges,
        )
        .where(*which, SampleRow.attempt_id.not_in(active))
        .group_by(*key)
        .order_by(*key)
    )
    return [
        StoredSeries(
            day=day,
            attempt_id=attempt_id,
            rank=rank,
            first_tick=first,
            last_tick=last,
            row_count=count,
            surplus_count=surplus,
        )
        for day, attempt_id, rank, first, last, count, surplus in rows
    ]


def _is_forgotten(before: dt.datetime) -> ColumnElement[bool]:
    """Positions of spool generations that were replaced long ago, or whose agent is gone as long.

    Should one come back, its position starts again with its next report.
    """
    latest = aliased(SpoolPosition)
    newest = (
        select(func.max(latest.updated_at))
        .where(latest.agent_id == SpoolPosition.agent_id)
        .scalar_subquery()
    )
    alive = select(AgentRow.id).where(AgentRow.heartbeat_at >= before)
    is_replaced = SpoolPosition.updated_at < newest
    return sa.and_(
        SpoolPosition.updated_at < before, or_(is_replaced, SpoolPosition.agent_id.not_in(alive))
    )


def _is_old_log(before: dt.datetime) -> ColumnElement[bool]:
    """Logs of attempts that were leased before the day of an instant, and are over."""
    day = dt.datetime.combine(before.date(), dt.time(), dt.UTC)
    over = select(AttemptRow.id).where(
        AttemptRow.leased_at < day, AttemptRow.state.not_in(ACTIVE_ATTEMPT_STATES)
    )
    return LogPartRow.attempt_id.in_(over)


def _count(session: Session, table: type[Any], which: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(table).where(which)) or 0
