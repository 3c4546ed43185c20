"""Values that tell whether a sweep or a job has changed since they were read. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from sqlalchemy import Integer, Select, cast, func, select
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.gang.lifecycle import ACTIVE_JOB_STATES
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Attempt, Job, JobEvent, Rank, Sweep

_Query = Select[*tuple[Any, ...]]


def check_there(session: Session, table: type[Sweep | Job], row_id: int) -> None:
    """Look whether there is a sweep or a job, and at nothing else of it.

    Raises:
        NotFound: there is none.
    """
    if session.scalar(select(table.id).where(table.id == row_id)) is None:
        raise NotFound(f"{table.__name__.lower()} {row_id}: there is none")


def sweep_stamps(session: Session, sweep_ids: Collection[int]) -> dict[int, Hashable]:
    """Return a stamp by sweep; of one that is gone there is none.

    Told from the jobs and not from their events, which are ten times as many. What happens within
    an attempt is of interest to its job alone.
    """
    if not sweep_ids:
        return {}
    sweeps = select(Sweep.id, Sweep.is_paused).where(Sweep.id.in_(sweep_ids))
    jobs = (
        select(
            Job.sweep_id,
            Job.state,
            func.count(),
            func.max(Job.id),
            func.max(Job.finished_at),
            func.sum(Job.attempt_count),
            func.sum(cast(Job.cancel_requested, Integer)),
        )
        .where(Job.sweep_id.in_(sweep_ids))
        .group_by(Job.sweep_id, Job.state)
        .order_by(Job.sweep_id, Job.state)
    )
    measured = (
        select(Job.sweep_id, func.count(MeasurementRow.id), func.max(MeasurementRow.id))
        .join(MeasurementRow, MeasurementRow.job_id == Job.id)
        .where(Job.sweep_id.in_(sweep_ids))
        .group_by(Job.sweep_id)
    )
    states: dict[int, tuple[Hashable, ...]] = {}
    for sweep_id, *state in session.execute(jobs):
        states[sweep_id] = (*states.get(sweep_id, ()), tuple(state))
    stamps = _together(session, sweeps, [measured])
    return {sweep_id: (stamp, states.get(sweep_id)) for sweep_id, stamp in stamps.items()}


def job_stamps(session: Session, job_ids: Collection[int], *, beat: int) -> dict[int, Hashable]:
    """Return a stamp by job; of one that is gone there is none.

    That of a job on which a gang works changes with `beat` too: every second its ranks report,
    and to look for what exactly would cost more than to read it.
    """
    if not job_ids:
        return {}
    jobs = select(Job.id, Job.state, Job.attempt_id, Job.cancel_requested, Job.due_at).where(
        Job.id.in_(job_ids)
    )
    events = (
        select(JobEvent.job_id, func.count(), func.max(JobEvent.id))
        .where(JobEvent.job_id.in_(job_ids))
        .group_by(JobEvent.job_id)
    )
    measured = (
        select(MeasurementRow.job_id, func.max(MeasurementRow.id))
        .where(MeasurementRow.job_id.in_(job_ids))
        .group_by(MeasurementRow.job_id)
    )
    # The last reports of ranks arrive after their attempt is over.
    ended = (
        select(Attempt.job_id, func.count(Rank.ended_at))
        .join(Rank, Rank.attempt_id == Attempt.id)
        .where(Attempt.job_id.in_(job_ids))
        .group_by(Attempt.job_id)
    )
    stamps = _together(session, jobs, [events, measured, ended])
    active = session.scalars(
        select(Job.id).where(Job.id.in_(job_ids), Job.state.in_(ACTIVE_JOB_STATES))
    )
    return stamps | {job_id: (stamps.get(job_id), beat) for job_id in active}


def _together(session: Session, first: _Query, others: Collection[_Query]) -> dict[int, Hashable]:
    found = {row[0]: tuple(row[1:]) for row in session.execute(first)}
    more = [{row[0]: tuple(row[1:]) for row in session.execute(query)} for query in others]
    return {key: (values, *(one.get(key) for one in more)) for key, values in found.items()}
