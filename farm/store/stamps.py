"""Computes stamps of sweeps and jobs: each changes whenever its sweep or job does. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from sqlalchemy import Integer, Select, cast, func, select
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.gang.lifecycle import ACTIVE_JOB_STATES
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow, SweepRow

_Query = Select[*tuple[Any, ...]]


def check_there(session: Session, table: type[SweepRow | JobRow], row_id: int) -> None:
    """Look whether there is a sweep or a job, and at nothing else of it.

    Raises:
        NotFound: it does not exist.
    """
    if session.scalar(select(table.id).where(table.id == row_id)) is None:
        raise NotFound(f"{table.__name__.lower()} {row_id} does not exist")


def sweep_stamps(session: Session, sweep_ids: Collection[int]) -> dict[int, Hashable]:
    """Return a stamp by sweep; deleted sweeps have none.

    Stamps are computed from the jobs, not from their events, which are ten times as many. Changes
    within an attempt affect only the stamp of its job.
    """
    if not sweep_ids:
        return {}
    sweeps = select(
        SweepRow.id, SweepRow.is_paused, SweepRow.budget_machine_s, SweepRow.budget_used_up_at
    ).where(SweepRow.id.in_(sweep_ids))
    jobs = (
        select(
            JobRow.sweep_id,
            JobRow.state,
            func.count(),
            func.max(JobRow.id),
            func.max(JobRow.finished_at),
            func.sum(JobRow.attempt_count),
            func.sum(cast(JobRow.cancel_requested, Integer)),
        )
        .where(JobRow.sweep_id.in_(sweep_ids))
        .group_by(JobRow.sweep_id, JobRow.state)
        .order_by(JobRow.sweep_id, JobRow.state)
    )
    measured = (
        select(JobRow.sweep_id, func.count(MeasurementRow.id), func.max(MeasurementRow.id))
        .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(JobRow.sweep_id.in_(sweep_ids))
        .group_by(JobRow.sweep_id)
    )
    states: dict[int, tuple[Hashable, ...]] = {}
    for sweep_id, *state in session.execute(jobs):
        states[sweep_id] = (*states.get(sweep_id, ()), tuple(state))
    stamps = _together(session, sweeps, [measured])
    return {sweep_id: (stamp, states.get(sweep_id)) for sweep_id, stamp in stamps.items()}


def job_stamps(session: Session, job_ids: Collection[int], *, beat: int) -> dict[int, Hashable]:
    """Return a stamp by job; deleted jobs have none.

    That of a job on which a gang works changes with `beat` too: every second its ranks report,
    and to look for what exactly would cost more than to read it.
    """
    if not job_ids:
        return {}
    jobs = select(
        JobRow.id, JobRow.state, JobRow.attempt_id, JobRow.cancel_requested, JobRow.due_at
    ).where(JobRow.id.in_(job_ids))
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
        select(AttemptRow.job_id, func.count(RankRow.ended_at))
        .join(RankRow, RankRow.attempt_id == AttemptRow.id)
        .where(AttemptRow.job_id.in_(job_ids))
        .group_by(AttemptRow.job_id)
    )
    stamps = _together(session, jobs, [events, measured, ended])
    active = session.scalars(
        select(JobRow.id).where(JobRow.id.in_(job_ids), JobRow.state.in_(ACTIVE_JOB_STATES))
    )
    return stamps | {job_id: (stamps.get(job_id), beat) for job_id in active}


def _together(session: Session, first: _Query, others: Collection[_Query]) -> dict[int, Hashable]:
    found = {row[0]: tuple(row[1:]) for row in session.execute(first)}
    more = [{row[0]: tuple(row[1:]) for row in session.execute(query)} for query in others]
    return {key: (values, *(one.get(key) for one in more)) for key, values in found.items()}
