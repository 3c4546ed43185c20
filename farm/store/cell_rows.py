"""What pages sum up the cells of a large sweep from: few columns, each query once. Reads only.

`farm.store.repetitions` returns whole cells with their specifications, which takes seconds for
thousands of them; here a specification is read once for each cell that is not known yet.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, Select, cast, extract, func, or_, select
from sqlalchemy.orm import Session

from farm.core.lifecycle import FINAL_JOB_STATES, JobState
from farm.core.measurement import OK
from farm.store.dashboard import measurement_stamp
from farm.store.repetitions import BY_CELL
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Attempt, Job

_IDS_A_QUERY = 1000  # databases limit the parameters of one statement
# A job that ended then may have been committed after one that ended later.
_LATE_COMMIT = dt.timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that failed; `kind` and `reason` are None where nobody knows."""

    job_id: int
    kind: str | None
    reason: str | None


def cells_stamp(session: Session, sweep_id: int) -> Hashable:
    """Return a value that changes whenever a job of the sweep, or any measurement, does."""
    counts = session.execute(
        select(
            Job.state,
            func.count(),
            func.max(Job.id),
            func.max(Job.finished_at),
            func.sum(Job.attempt_count),
            func.sum(cast(Job.cancel_requested, Integer)),
        )
        .where(Job.sweep_id == sweep_id)
        .group_by(Job.state)
        .order_by(Job.state)
    )
    return measurement_stamp(session), tuple(tuple(row) for row in counts)


def job_groups(
    session: Session, sweep_id: int, *, max_jobs: int
) -> tuple[dict[str, tuple[Any, ...]], bool]:
    """Return the jobs of a sweep by cell, each with what it measured, and whether these are all.

    Of more than `max_jobs` the first whole cells. The columns of the measurement are None for a job
    that has none.
    """
    rows = session.execute(_jobs(sweep_id).limit(max_jobs + 1)).all()
    is_complete = len(rows) <= max_jobs
    if not is_complete:
        rows = [row for row in rows if row.cell_hash != rows[-1].cell_hash]
    groups = itertools.groupby(rows, lambda row: row.cell_hash)
    return {cell_hash: tuple(jobs) for cell_hash, jobs in groups}, is_complete


def changed_groups(
    session: Session, sweep_id: int, before: Mapping[str, tuple[Any, ...]], *, max_jobs: int
) -> dict[str, tuple[Any, ...]] | None:
    """Return what `job_groups` would, from what that has returned before of a whole sweep.

    The jobs of a cell in which nothing has changed are the very same tuple. Read is only what may
    have changed: jobs that are not over, that ended lately, or that were added. None: there are
    cells or jobs that call for reading everything.
    """
    every = [job for jobs in before.values() for job in jobs]
    if not every:
        return None
    may_have_changed = [
        Job.state.not_in(FINAL_JOB_STATES),
        Job.id > max(job.id for job in every),
    ]
    ended = [job.finished_at for job in every if job.finished_at is not None]
    has_ended = (
        Job.finished_at >= max(ended) - _LATE_COMMIT if ended else Job.finished_at.is_not(None)
    )
    changed = session.execute(_jobs(sweep_id).where(or_(*may_have_changed, has_ended)))
    groups = dict(before)
    for cell_hash, some in itertools.groupby(changed, lambda row: row.cell_hash):
        if cell_hash not in groups:
            return None
        by_id = {job.id: job for job in (*groups[cell_hash], *some)}
        jobs = tuple(by_id.values())
        if jobs != groups[cell_hash]:
            groups[cell_hash] = jobs
    return groups if sum(map(len, groups.values())) <= max_jobs else None


def _jobs(sweep_id: int) -> Select[*tuple[Any, ...]]:
    return (
        select(
            Job.id,
            Job.cell_hash,
            Job.state,
            Job.failure_kind,
            Job.cancel_requested,
            Job.finished_at,
            MeasurementRow.status,
            MeasurementRow.step_time_s,
            MeasurementRow.fingerprint,
            MeasurementRow.model,
            MeasurementRow.dataset,
            MeasurementRow.training_pass,
            MeasurementRow.strategy,
            MeasurementRow.world_size,
            MeasurementRow.global_batch_size,
            MeasurementRow.instance_type,
            MeasurementRow.throughput_examples_per_s,
            MeasurementRow.time_per_epoch_s,
        )
        .outerjoin(MeasurementRow, MeasurementRow.job_id == Job.id)
        .where(Job.sweep_id == sweep_id)
        .order_by(*BY_CELL)
    )


def specs_of(session: Session, job_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return the specifications of these jobs."""
    found: dict[int, Mapping[str, Any]] = {}
    for begin in range(0, len(job_ids), _IDS_A_QUERY):
        rows = session.execute(
            select(Job.id, Job.spec).where(Job.id.in_(job_ids[begin : begin + _IDS_A_QUERY]))
        )
        found |= {job_id: spec for job_id, spec in rows}
    return found


def machine_s_by_cell(session: Session, sweep_id: int) -> dict[str, float]:
    """Return how long the attempts of each cell kept agents, times the number of these.

    SQLite knows whole seconds only, which even out over attempts.
    """
    taken_s = extract("epoch", Attempt.ended_at) - extract("epoch", Attempt.leased_at)
    rows = session.execute(
        select(Job.cell_hash, func.sum(Job.world_size * taken_s))
        .join(Attempt, Attempt.job_id == Job.id)
        .where(Job.sweep_id == sweep_id, Attempt.ended_at.is_not(None))
        .group_by(Job.cell_hash)
    )
    # PostgreSQL reckons exactly, in decimals.
    return {cell_hash: float(spent_s) for cell_hash, spent_s in rows}


def failed_jobs(session: Session, job_ids: Collection[int]) -> dict[int, FailedJob]:
    """Return of a page's jobs those that failed, with the reason."""
    rows = session.execute(
        select(Job.id, Job.failure_kind, Job.reason).where(
            Job.id.in_(job_ids), Job.state == JobState.FAILED
        )
    )
    return {row.id: FailedJob(row.id, row.failure_kind, row.reason) for row in rows}


def measured_conditions(session: Session, sweep_id: int) -> Sequence[Any]:
    """Return under which conditions a sweep has measured something, each once.

    The columns are those of the measurement; `is_gang`: on more than one machine.
    """
    is_gang = (MeasurementRow.world_size > 1).label("is_gang")
    return session.execute(
        select(
            MeasurementRow.origin,
            MeasurementRow.model,
            MeasurementRow.dataset,
            MeasurementRow.training_pass,
            MeasurementRow.global_batch_size,
            MeasurementRow.one_way_delay_s,
            MeasurementRow.bandwidth_bytes_per_s,
            MeasurementRow.packet_loss_ratio,
            MeasurementRow.jitter_s,
            is_gang,
        )
        .join(Job, Job.id == MeasurementRow.job_id)
        .where(Job.sweep_id == sweep_id, MeasurementRow.status == OK)
        .distinct()
    ).all()
