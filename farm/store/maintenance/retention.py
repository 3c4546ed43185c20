"""Retention rules: when data is deleted or thinned out.

Measurements, step times, epochs and the story of jobs are kept for good, and so is everything of
an attempt that is still active.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session, aliased

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.store.engine import reading
from farm.store.maintenance.partitions import partition_days
from farm.store.notifications import FIRST_LOOK, is_old_delivery
from farm.store.reports.late_reports import forgotten_late_count
from farm.store.result_tables import ImportedSampleRow, LogPartRow, SampleRow
from farm.store.series.samples import is_of_old_import
from farm.store.tables import AgentRow, AttemptRow, LateReport, NotificationDelivery, SpoolPosition


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
        """Rows that thinning takes away; what they said stays in the means."""
        return sum(series.surplus_count for series in self.thinned)


def plan_prune(engine: sa.Engine, retention: Retention, *, now: dt.datetime) -> PrunePlan:
    """Say what `prune` would do; nothing is changed, and nobody has to wait.

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
            position_count = _count(session, SpoolPosition, is_forgotten(before))
            log_count = _count(session, LogPartRow, is_old_log(before))
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
    rows = session.execute(
        select(
            *key,
            func.min(SampleRow.tick),
            func.max(SampleRow.tick),
            func.count(),
            func.count() - ranges,
        )
        .where(*which, ~_is_active())
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


def _is_active() -> ColumnElement[bool]:
    active = select(AttemptRow.id).where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
    return SampleRow.attempt_id.in_(active)


def is_forgotten(before: dt.datetime) -> ColumnElement[bool]:
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


def is_old_log(before: dt.datetime) -> ColumnElement[bool]:
    """Logs of attempts that were leased before the day of an instant, and are over."""
    day = dt.datetime.combine(before.date(), dt.time(), dt.UTC)
    over = select(AttemptRow.id).where(
        AttemptRow.leased_at < day, AttemptRow.state.not_in(ACTIVE_ATTEMPT_STATES)
    )
    return LogPartRow.attempt_id.in_(over)


def _count(session: Session, table: type[Any], which: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(table).where(which)) or 0
