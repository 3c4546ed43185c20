"""Reads the remaining jobs of sweeps and their speed so far, to estimate the end.

The database sums them up: nearly all jobs of a large sweep wait and are alike.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, extract, func, select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import ACTIVE_JOB_STATES, AttemptState, JobState
from farm.placement.progress import JobPace, SweepLoad, UnfinishedJob
from farm.store.sweeps.budgets import IS_HELD
from farm.store.tables import AttemptRow, JobRow, SweepRow

# An attempt that was lost, voided or cancelled says nothing of how long one takes.
_DECIDED = (AttemptRow.state.in_((AttemptState.SUCCEEDED, AttemptState.FAILED)),)
_LATEST_COUNT = 1000

ReadPaces = Callable[[Session, Collection[int]], Mapping[int, tuple[JobPace, ...]]]


def sweep_loads(
    session: Session,
    *,
    now: dt.datetime,
    sweep_ids: Collection[int] | None = None,
    read_paces: ReadPaces | None = None,
) -> dict[int, SweepLoad]:
    """Return by id the remaining work of these or all sweeps, without finished ones.

    `read_paces`: in the place of `paces`, for callers that cache its result.
    """
    active: dict[int, list[UnfinishedJob]] = defaultdict(list)
    waiting: dict[int, list[UnfinishedJob]] = defaultdict(list)
    held: set[int] = set()
    for sweep_id, agent_count, is_held, count in session.execute(_waiting(sweep_ids)):
        waiting[sweep_id].append(UnfinishedJob(agent_count=agent_count, job_count=count))
        if is_held:
            held.add(sweep_id)
    for sweep_id, agent_count, leased_at in session.execute(_active(sweep_ids)):
        elapsed_s = (now - leased_at).total_seconds()
        active[sweep_id].append(UnfinishedJob(agent_count=agent_count, elapsed_s=elapsed_s))
    unfinished = active.keys() | waiting.keys()
    known = (read_paces or paces)(session, unfinished)
    return {
        sweep_id: SweepLoad(
            paces=known.get(sweep_id, ()),
            active=tuple(active[sweep_id]),
            waiting=tuple(waiting[sweep_id]),
            is_held=sweep_id in held,
        )
        for sweep_id in sorted(unfinished)
    }


def paces(session: Session, sweep_ids: Collection[int]) -> dict[int, tuple[JobPace, ...]]:
    """Return by sweep, for every width, how long its measured and failed jobs took.

    A job that failed, was asked for again and finished counts as often as it was decided. Of a
    sweep without any there is nothing.
    """
    if not sweep_ids:
        return {}
    rows = session.execute(
        select(JobRow.sweep_id, JobRow.agent_count, func.count(), func.avg(_taken_s()))
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(JobRow.sweep_id.in_(sweep_ids), *_DECIDED, AttemptRow.ended_at.is_not(None))
        .group_by(JobRow.sweep_id, JobRow.agent_count)
        .order_by(JobRow.sweep_id, JobRow.agent_count)
    )
    found: dict[int, list[JobPace]] = defaultdict(list)
    for sweep_id, *row in rows:
        found[sweep_id].append(_pace(row))
    return {sweep_id: tuple(of_sweep) for sweep_id, of_sweep in found.items()}


def latest_paces(session: Session) -> tuple[JobPace, ...]:
    """Return for every width how long the latest jobs took, whatever sweeps they were of."""
    latest = (
        select(JobRow.agent_count, _taken_s().label("taken_s"))
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(*_DECIDED, AttemptRow.ended_at.is_not(None))
        .order_by(AttemptRow.id.desc())
        .limit(_LATEST_COUNT)
        .subquery()
    )
    rows = session.execute(
        select(latest.c.agent_count, func.count(), func.avg(latest.c.taken_s))
        .group_by(latest.c.agent_count)
        .order_by(latest.c.agent_count)
    )
    return tuple(_pace(row) for row in rows)


def _waiting(sweep_ids: Collection[int] | None) -> Select[int, int, bool, int]:
    query = (
        select(JobRow.sweep_id, JobRow.agent_count, IS_HELD, func.count())
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .where(JobRow.state == JobState.WAITING)
        .group_by(JobRow.sweep_id, JobRow.agent_count, IS_HELD)
    )
    return query if sweep_ids is None else query.where(JobRow.sweep_id.in_(sweep_ids))


def _active(sweep_ids: Collection[int] | None) -> Select[int, int, dt.datetime]:
    query = (
        select(JobRow.sweep_id, JobRow.agent_count, AttemptRow.leased_at)
        .join(AttemptRow, AttemptRow.id == JobRow.attempt_id)
        .where(JobRow.state.in_(ACTIVE_JOB_STATES))
    )
    return query if sweep_ids is None else query.where(JobRow.sweep_id.in_(sweep_ids))


def _taken_s() -> ColumnElement[Any]:
    """Seconds from lease to end. SQLite knows whole ones only, which even out over jobs."""
    return extract("epoch", AttemptRow.ended_at) - extract("epoch", AttemptRow.leased_at)


def _pace(row: Sequence[Any]) -> JobPace:
    agent_count, count, mean_s = row
    # PostgreSQL reckons exactly, in decimals.
    return JobPace(agent_count=agent_count, job_count=count, mean_s=float(mean_s))
