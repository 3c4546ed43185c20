"""Reads the rows from which pages sum up the cells of a sweep. Reads only.

`farm.store.measurements.repetitions` returns whole cells with their specifications, which takes
seconds for thousands of cells. Here specifications are read only for cells that are not known yet.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, case, cast, extract, func, or_, select
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES, TASK_AXES
from farm.gang.lifecycle import UNFINISHED_JOB_STATES, JobState
from farm.measuring.measurement import OK
from farm.measuring.quantities import QUANTITIES
from farm.store.dashboard import measurement_stamp
from farm.store.engine import IDS_A_QUERY
from farm.store.measurements.repetitions import BY_CELL, CellKey
from farm.store.result_tables import MEASUREMENTS, MeasurementRow, axis_column, quantity_column
from farm.store.tables import AttemptRow, JobRow

# Where more have ended unseen than these, all of a sweep is read as fast.
_MOST_READ_BY_ID = 2000
# A job that ended then may have been committed after one that ended later.
_LATE_COMMIT = dt.timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A failed job; `kind` and `reason` are None if not known."""

    job_id: int
    kind: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellJobs:
    """The jobs of a sweep by the hash of their cell, like next to like.

    `is_complete`: none is left out. `last_id`: the largest id; `last_end`: when the last one ended.
    """

    by_cell: Mapping[str, tuple[Any, ...]]
    is_complete: bool
    last_id: int
    last_end: dt.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTotals:
    """How many jobs and cells a whole sweep has; `failed_cell_count`: with a job that failed."""

    job_count: int
    cell_count: int
    failed_cell_count: int


def cells_stamp(session: Session, sweep_id: int) -> Hashable:
    """Return a value that changes whenever a job of the sweep, or any measurement, does."""
    counts = session.execute(
        select(
            JobRow.state,
            func.count(),
            func.max(JobRow.id),
            func.max(JobRow.finished_at),
            func.sum(JobRow.attempt_count),
            func.sum(cast(JobRow.cancel_requested, Integer)),
        )
        .where(JobRow.sweep_id == sweep_id)
        .group_by(JobRow.state)
        .order_by(JobRow.state)
    )
    return measurement_stamp(session), tuple(tuple(row) for row in counts)


def job_groups(session: Session, sweep_id: int, *, max_jobs: int | None) -> CellJobs:
    """Return the jobs of a sweep by cell, each with its measurement.

    Of more than `max_jobs` the first whole cells; None: all. The columns of the measurement are
    None for a job that has none.
    """
    limit = None if max_jobs is None else max_jobs + 1
    rows = session.execute(_of_sweep(sweep_id).limit(limit)).all()
    is_complete = max_jobs is None or len(rows) <= max_jobs
    if not is_complete:
        rows = [row for row in rows if row.cell_hash != rows[-1].cell_hash]
    groups = itertools.groupby(rows, lambda row: row.cell_hash)
    return CellJobs(
        by_cell={cell_hash: tuple(jobs) for cell_hash, jobs in groups},
        is_complete=is_complete,
        last_id=max((row.id for row in rows), default=0),
        last_end=max((row.finished_at for row in rows if row.finished_at), default=None),
    )


def cell_totals(session: Session, sweep_id: int) -> CellTotals:
    """Count the jobs of a sweep, its cells, and the cells with a failed job."""
    failed = case((JobRow.state == JobState.FAILED, JobRow.cell_hash))
    jobs, cells, failed_cells = session.execute(
        select(
            func.count(), func.count(JobRow.cell_hash.distinct()), func.count(failed.distinct())
        ).where(JobRow.sweep_id == sweep_id)
    ).one()
    return CellTotals(job_count=jobs, cell_count=cells, failed_cell_count=failed_cells)


def changed_groups(
    session: Session,
    sweep_id: int,
    before: CellJobs,
    *,
    max_jobs: int | None,
    most_read_by_id: int = _MOST_READ_BY_ID,
) -> CellJobs | None:
    """Return the result of `job_groups`, by updating its earlier result for a whole sweep.

    The jobs of a cell in which nothing has changed are the very same tuple. Read is only what may
    have changed: jobs that are not over or were not then, that ended lately, or that were added.
    None: there are cells or jobs that call for reading everything.
    """
    if not before.by_cell or not before.is_complete:
        return None
    end = before.last_end
    may_have_changed = or_(
        JobRow.state.in_(UNFINISHED_JOB_STATES),
        JobRow.id > before.last_id,
        JobRow.finished_at >= end - _LATE_COMMIT if end else JobRow.finished_at.is_not(None),
    )
    # Of the order like next to like, only that within a cell matters here; all of it takes longer.
    ordered = _of_sweep(sweep_id).order_by(None).order_by(JobRow.repetition, JobRow.id)
    rows = list(session.execute(ordered.where(may_have_changed)).all())
    # Where clocks differ, one may have ended since at a time that is long past.
    known_ids = {row.id for row in rows}
    missing = [
        job.id
        for jobs in before.by_cell.values()
        for job in jobs
        if job.state in UNFINISHED_JOB_STATES and job.id not in known_ids
    ]
    if len(missing) > most_read_by_id:
        return None
    for begin in range(0, len(missing), IDS_A_QUERY):
        some_ids = missing[begin : begin + IDS_A_QUERY]
        rows += session.execute(ordered.where(JobRow.id.in_(some_ids))).all()
    some_by_cell: dict[str, list[Any]] = {}
    for row in rows:
        some_by_cell.setdefault(row.cell_hash, []).append(row)
    groups = dict(before.by_cell)
    for cell_hash, some in some_by_cell.items():
        known = groups.get(cell_hash)
        if known is None:
            return None
        by_id = {job.id: job for job in (*known, *some)}
        jobs = tuple(by_id.values())
        if jobs != known:
            groups[cell_hash] = jobs
    if max_jobs is not None and sum(map(len, groups.values())) > max_jobs:
        return None
    ends = [row.finished_at for row in rows if row.finished_at]
    return CellJobs(
        by_cell=groups,
        is_complete=True,
        last_id=max([before.last_id, *(row.id for row in rows)]),
        last_end=max([end, *ends] if end else ends, default=None),
    )


def _of_sweep(sweep_id: int) -> Select[*tuple[Any, ...]]:
    return jobs_with_results(JobRow.sweep_id == sweep_id).order_by(*BY_CELL)


def jobs_with_results(
    which: ColumnElement[bool], *further: ColumnElement[Any]
) -> Select[*tuple[Any, ...]]:
    """Select what `farm.cells.table.make_line` sums up, and further columns of either table."""
    return (
        select(
            JobRow.id,
            JobRow.cell_hash,
            JobRow.state,
            JobRow.failure_kind,
            JobRow.cancel_requested,
            JobRow.finished_at,
            JobRow.attempt_count,  # an attempt that is lost leaves nothing else behind
            MeasurementRow.id.label("measurement_id"),
            MeasurementRow.status,
            MeasurementRow.fingerprint,
            MeasurementRow.framework,
            MeasurementRow.flags,
            MeasurementRow.instance_type,
            MeasurementRow.gradient_bytes,
            *(axis_column(axis).label(axis.field) for axis in AXES if not axis.is_of_network),
            *(quantity_column(one).label(one.name) for one in QUANTITIES),
            *further,
        )
        .outerjoin(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(which)
    )


def cells_of_measurements(session: Session, measurement_ids: Sequence[int]) -> dict[int, CellKey]:
    """Return by measurement the sweep and cell that it belongs to; imported ones have none."""
    found: dict[int, CellKey] = {}
    for begin in range(0, len(measurement_ids), IDS_A_QUERY):
        some = measurement_ids[begin : begin + IDS_A_QUERY]
        rows = session.execute(
            select(MeasurementRow.id, JobRow.sweep_id, JobRow.cell_hash)
            .join(JobRow, JobRow.id == MeasurementRow.job_id)
            .where(MeasurementRow.id.in_(some))
        )
        found |= {row_id: (sweep_id, cell_hash) for row_id, sweep_id, cell_hash in rows}
    return found


def jobs_of_cells(session: Session, cells: Collection[CellKey]) -> dict[CellKey, list[Row[Any]]]:
    """Return the jobs of these cells of sweeps, each with its measurement, by repetition."""
    found: dict[CellKey, list[Row[Any]]] = {}
    hashes: dict[int, list[str]] = {}
    for sweep_id, cell_hash in cells:
        hashes.setdefault(sweep_id, []).append(cell_hash)
    for sweep_id, of_sweep in hashes.items():
        query = jobs_with_results((JobRow.sweep_id == sweep_id) & JobRow.cell_hash.in_(of_sweep))
        for row in session.execute(query.order_by(JobRow.repetition, JobRow.id)):
            found.setdefault((sweep_id, row.cell_hash), []).append(row)
    return found


def specs_of(session: Session, job_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return the specifications of these jobs."""
    return {job_id: row.spec for job_id, row in jobs_of(session, job_ids).items()}


def jobs_of(session: Session, job_ids: Sequence[int]) -> dict[int, Row[Any]]:
    """Return the cell hash and the specification of these jobs, by their ids."""
    found: dict[int, Row[Any]] = {}
    for begin in range(0, len(job_ids), IDS_A_QUERY):
        some = job_ids[begin : begin + IDS_A_QUERY]
        rows = session.execute(
            select(JobRow.id, JobRow.cell_hash, JobRow.spec).where(JobRow.id.in_(some))
        )
        found |= {row.id: row for row in rows}
    return found


def machine_s_by_cell(
    session: Session, sweep_id: int, *, job_ids: Collection[int] | None = None
) -> dict[str, float]:
    """Return how long the attempts of each cell kept agents, times the number of these.

    `job_ids`: of these jobs alone, some hundred at the most.
    """
    if session.get_bind().dialect.name == "sqlite":
        days = func.julianday(AttemptRow.ended_at) - func.julianday(AttemptRow.leased_at)
        taken_s: ColumnElement[Any] = days * 86400.0  # its epoch has whole seconds only
    else:
        taken_s = extract("epoch", AttemptRow.ended_at) - extract("epoch", AttemptRow.leased_at)
    query = (
        select(JobRow.cell_hash, func.sum(JobRow.agent_count * taken_s))
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(JobRow.sweep_id == sweep_id, AttemptRow.ended_at.is_not(None))
        .group_by(JobRow.cell_hash)
    )
    rows = session.execute(query if job_ids is None else query.where(JobRow.id.in_(job_ids)))
    # PostgreSQL reckons exactly, in decimals; SQLite's days are true to a tenth of a millisecond.
    return {cell_hash: round(float(spent_s), 3) for cell_hash, spent_s in rows}


def failed_jobs(session: Session, job_ids: Collection[int]) -> dict[int, FailedJob]:
    """Return the failed jobs of a page, with their reasons."""
    rows = session.execute(
        select(JobRow.id, JobRow.failure_kind, JobRow.reason).where(
            JobRow.id.in_(job_ids), JobRow.state == JobState.FAILED
        )
    )
    return {row.id: FailedJob(row.id, row.failure_kind, row.reason) for row in rows}


def measured_conditions(session: Session, sweep_id: int) -> Sequence[Any]:
    """Return under which conditions a sweep has measured something, each once.

    The columns are those of the measurement; `is_gang`: on more than one machine.
    """
    is_gang = (MEASUREMENTS.world_size > 1).label("is_gang")
    return session.execute(
        select(
            MeasurementRow.origin,
            *(axis_column(axis).label(axis.field) for axis in TASK_AXES),
            is_gang,
        )
        .join(JobRow, JobRow.id == MeasurementRow.job_id)
        .where(JobRow.sweep_id == sweep_id, MeasurementRow.status == OK)
        .distinct()
    ).all()
