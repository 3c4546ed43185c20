"""Reads how long gangs run: the gangs leased now, and the last ones that succeeded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import ACTIVE_JOB_STATES, AttemptState, JobState
from farm.gang.snapshots import GangAtWork
from farm.store.tables import AgentRow, AttemptRow, JobRow
from farm.values.codec import from_json

_CELLS_A_QUERY = 500  # databases limit the parameters of one statement


def gangs_at_work(
    session: Session, *, now: dt.datetime, expected_s: Mapping[str, float] | None = None
) -> list[GangAtWork]:
    """Return every leased gang; `expected_s`: by cell hash, its expected duration."""
    rows = session.execute(
        select(
            AgentRow.id.label("agent_id"),
            AttemptRow.id.label("token"),
            AttemptRow.leased_at,
            JobRow.sweep_id,
            JobRow.cell_hash,
        )
        .join(AttemptRow, AttemptRow.id == AgentRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .order_by(AttemptRow.id, AgentRow.id)
    )
    gangs = []
    for _, members in groupby(rows, key=lambda row: row.token):
        gang = list(members)
        gangs.append(
            GangAtWork(
                sweep_id=gang[0].sweep_id,
                agent_ids=tuple(row.agent_id for row in gang),
                age_s=max(0.0, (now - gang[0].leased_at).total_seconds()),
                expected_s=(expected_s or {}).get(gang[0].cell_hash),
            )
        )
    return gangs


def unfinished_cells(session: Session, *, limit: int) -> dict[str, int]:
    """Return the cells of jobs that wait or are at work, with the id of one job each.

    If there are more than `limit`, each sweep has a share: the cells of its first jobs.
    """
    states = (JobState.WAITING, *ACTIVE_JOB_STATES)
    first = (
        select(
            JobRow.sweep_id,
            JobRow.cell_hash,
            func.min(JobRow.id).label("id"),
            func.max(JobRow.priority).label("priority"),
        )
        .where(JobRow.state.in_(states))
        .group_by(JobRow.sweep_id, JobRow.cell_hash)
        .subquery()
    )
    number = func.row_number().over(
        partition_by=first.c.sweep_id, order_by=(first.c.priority.desc(), first.c.id)
    )
    rows = session.execute(
        select(first.c.cell_hash, first.c.id)
        .order_by(number, first.c.priority.desc(), first.c.id)
        .limit(limit)
    )
    found: dict[str, int] = {}
    for cell_hash, job_id in rows:
        found.setdefault(cell_hash, job_id)
    return found


def cell_specs(session: Session, job_ids: Collection[int]) -> dict[str, JobSpec]:
    """Return the specifications of jobs of different cells, by cell hash."""
    found: dict[str, JobSpec] = {}
    ids = list(job_ids)
    for begin in range(0, len(ids), _CELLS_A_QUERY):
        some = ids[begin : begin + _CELLS_A_QUERY]
        specs = session.execute(select(JobRow.cell_hash, JobRow.spec).where(JobRow.id.in_(some)))
        found.update({cell_hash: from_json(JobSpec, spec) for cell_hash, spec in specs})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLength:
    """How long a successful gang was leased."""

    cell_hash: str
    job_id: int
    length_s: float


def last_lengths(session: Session, *, limit: int) -> list[LastLength]:
    """Return how long the last gangs that succeeded took, the newest first."""
    rows = session.execute(
        select(JobRow.cell_hash, JobRow.id, AttemptRow.leased_at, AttemptRow.ended_at)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(AttemptRow.state == AttemptState.SUCCEEDED, AttemptRow.ended_at.is_not(None))
        .order_by(AttemptRow.id.desc())
        .limit(limit)
    )
    return [
        LastLength(
            cell_hash=cell_hash,
            job_id=job_id,
            length_s=(ended_at - leased_at).total_seconds(),
        )
        for cell_hash, job_id, leased_at, ended_at in rows
        if ended_at is not None
    ]
