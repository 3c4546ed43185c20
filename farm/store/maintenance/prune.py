"""Deletes or thins out data that is older than the retention rules allow.

The work is cut into transactions of some thousand rows, so that collectors go on storing
meanwhile, and what was done stays done when it is interrupted.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import ColumnElement, delete, exc, select
from sqlalchemy.orm import Session

from farm.errors import Unreachable
from farm.messages.reports import Sample
from farm.store.engine import short_writing, writing
from farm.store.maintenance.partitions import drop_partition, is_lock_conflict
from farm.store.maintenance.retention import PrunePlan, StoredSeries, is_forgotten, is_old_log
from farm.store.notifications import is_old_delivery, is_old_event
from farm.store.reports.late_reports import forget_late_counts
from farm.store.result_tables import ImportedSampleRow, LogPartRow, SampleRow
from farm.store.series.samples import is_of_old_import
from farm.store.tables import LateReport, NotificationDelivery, NotificationEvent, SpoolPosition

# Of one transaction: SQLite has one writer at a time, and others wait some hundredths of a second.
_ROWS_AT_ONCE = 5000
_REPORTS_AT_ONCE = 500
_LOG_PARTS_AT_ONCE = 500  # each of some ten thousand characters at most
_DROP_TRIES = 5
_METRICS = tuple(field.name for field in dataclasses.fields(Sample))

# Told how many rows are done of how many.
Progress = Callable[[int, int], None]


def prune(
    engine: sa.Engine, plan: PrunePlan, *, progress: Progress, drop_tries: int = _DROP_TRIES
) -> None:
    """Do what was planned; doing it twice changes nothing more.

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
        _drop_reports(engine, plan.late_before)
    if plan.before is not None:
        with writing(engine) as session:
            session.execute(delete(SpoolPosition).where(is_forgotten(plan.before)))
        _drop_logs(engine, plan.before)
        _drop_imported(engine, plan.before)
    if plan.notified_before is not None:
        _drop_notifications(engine, plan.notified_before)
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


def _drop_reports(engine: sa.Engine, before: dt.datetime) -> None:
    """Late reports hold whole batches of samples, so they go a few at a time too."""
    some = select(LateReport.id).where(LateReport.received_at < before).limit(_REPORTS_AT_ONCE)
    ids = [0]
    while ids:
        with short_writing(engine) as session:
            ids = list(session.scalars(some))
            session.execute(delete(LateReport).where(LateReport.id.in_(ids)))
    with writing(engine) as session:
        forget_late_counts(session, before=before)


def _drop_logs(engine: sa.Engine, before: dt.datetime) -> None:
    key = (LogPartRow.attempt_id, LogPartRow.rank, LogPartRow.first_character)
    some = select(*key).where(is_old_log(before)).limit(_LOG_PARTS_AT_ONCE)
    drop_some = delete(LogPartRow).where(sa.tuple_(*key).in_(some))
    count = 1
    while count:
        with short_writing(engine) as session:
            count = session.connection().execute(drop_some).rowcount


def _drop_imported(engine: sa.Engine, before: dt.datetime) -> None:
    key = ImportedSampleRow.__table__.primary_key.columns
    some = select(*key).where(is_of_old_import(before)).limit(_ROWS_AT_ONCE)
    drop_some = delete(ImportedSampleRow).where(sa.tuple_(*key).in_(some))
    count = 1
    while count:
        with short_writing(engine) as session:
            count = session.connection().execute(drop_some).rowcount


def _drop_notifications(engine: sa.Engine, before: dt.datetime) -> None:
    delivery, event = NotificationDelivery.id, NotificationEvent.id
    for key, which in ((delivery, is_old_delivery(before)), (event, is_old_event(before))):
        some = select(key).where(which).limit(_ROWS_AT_ONCE)
        count = 1
        while count:
            with short_writing(engine) as session:
                dropped = delete(key.class_).where(key.in_(some))
                count = session.connection().execute(dropped).rowcount


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


# Fewer samples of long ago: equal ranges of ticks, each told by one row.


# A mean would hide what memory is judged by: how near it came to the limit.
_PEAKS = ("memory_used_bytes", "resident_bytes")
_MEANS = tuple(
    field.name
    for field in dataclasses.fields(Sample)
    if field.name not in ("tick", "extra", *_PEAKS)
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
