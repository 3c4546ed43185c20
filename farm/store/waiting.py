"""The queue: jobs that wait for a gang, in the order in which they came due."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from farm.core.lifecycle import AttemptState, JobState
from farm.core.trainer_lines import FailureKind
from farm.core.views import WaitingJob
from farm.store.repetitions import Cell, CellServers, cell_servers
from farm.store.tables import Attempt, Job, Rank, Sweep

_IDS_A_QUERY = 1000  # databases limit the parameters of one statement
# Of so many jobs at the head of the queue it is looked up who has measured their cells.
_SPREAD_COUNT = 500
# The ranks that said nothing are then the ones at fault.
_WAS_STALLED = Attempt.failure_kind == FailureKind.STALLED.value
_NO_CELL = (0, "")
# Who has measured which cells.
ServersOf: TypeAlias = Callable[[Session, Collection[Cell]], Mapping[Cell, CellServers]]
# Paused or not, and due or not yet.
WAITS = (Job.state == JobState.WAITING, Job.cancel_requested.is_(False))


@dataclass(slots=True)
class QueuedJob:
    """A job that waits, with what it takes to know whether it still is the same."""

    job: WaitingJob
    due_at: dt.datetime
    attempt_count: int
    cell_hash: str
    repetition: int
    _spread: tuple[WaitingJob, CellServers, WaitingJob] | None = None

    def spread_over(self, measured: CellServers) -> WaitingJob:
        """Return the job with who has measured its cell; of the same the same one."""
        if (
            self._spread is None
            or self._spread[0] is not self.job
            or self._spread[1] is not measured
        ):
            told = dataclasses.replace(
                self.job,
                measured_by=measured.rank_counts,
                measured_on=frozenset(measured.fingerprints),
            )
            self._spread = self.job, measured, told
        return self._spread[2]

    @property
    def place(self) -> tuple[int, dt.datetime, int]:
        """What the queue is sorted by: higher priority first, then the longer wait."""
        return -self.job.priority, self.due_at, self.job.job_id


def waiting_jobs(
    session: Session,
    *,
    now: dt.datetime,
    limit: int = 10_000,
    is_spread: bool = True,
    expected_s: Mapping[str, float] | None = None,
) -> list[WaitingJob]:
    """Return the jobs that may be placed now: higher priority first, then the longer wait.

    A job in the pause before its next attempt is not among them, nor is one of a paused sweep.
    `is_spread`: look up who has measured their cells, over whom repetitions are to be spread.
    `expected_s`: by cell hash, how long jobs take, if that is known.
    """
    query = queued_rows().where(*_may_be_placed(now))
    rows = session.execute(query.order_by(Job.priority.desc(), Job.due_at, Job.id).limit(limit))
    queue = [queued_job(row, now=now, expected_s=expected_s or {}) for row in rows]
    return with_history(session, queue, spread_count=_SPREAD_COUNT if is_spread else 0)


def queued_rows() -> Select[Any]:
    """Return the query for what `queued_job` is made of: few columns, since a queue is long."""
    return select(
        Job.id,
        Job.sweep_id,
        Job.cell_hash,
        Job.repetition,
        Job.rank_count,
        Job.requires,
        Job.priority,
        Job.due_at,
        Job.spec["labels"].label("labels"),  # specifications are wide
        Job.attempt_count,
    )


def queued_job(row: Any, *, now: dt.datetime, expected_s: Mapping[str, float]) -> QueuedJob:
    """Make a job of a row of `queued_rows`, without what others know of it."""
    job = WaitingJob(
        job_id=row.id,
        sweep_id=row.sweep_id,
        rank_count=row.rank_count,
        requires=frozenset(row.requires),
        labels=frozenset((row.labels or {}).items()),
        priority=row.priority,
        waited_s=(now - row.due_at).total_seconds(),
        expected_s=expected_s.get(row.cell_hash),
    )
    return QueuedJob(job, row.due_at, row.attempt_count, row.cell_hash, row.repetition)


def with_history(
    session: Session,
    queue: Sequence[QueuedJob],
    *,
    spread_count: int = _SPREAD_COUNT,
    servers_of: ServersOf = cell_servers,
) -> list[WaitingJob]:
    """Return the jobs with the agents that failed them, and the first ones with who measured them.

    Only of the first `spread_count` jobs it is looked up who has measured their cells, by
    `servers_of`.
    """
    avoid = _failed_agents(session, [one.job.job_id for one in queue if one.attempt_count > 0])
    again = {
        one.job.job_id: (one.job.sweep_id, one.cell_hash)
        for one in queue[:spread_count]
        if one.repetition > 0
    }
    servers = servers_of(session, set(again.values()))
    jobs = [one.job for one in queue]
    for i, one in enumerate(queue[:spread_count] if servers else ()):
        measured = servers.get(again.get(one.job.job_id, _NO_CELL))
        if measured is not None:
            jobs[i] = one.spread_over(measured)
    for i, job in enumerate(jobs if avoid else ()):
        if job.job_id in avoid:
            jobs[i] = dataclasses.replace(job, avoid=frozenset(avoid[job.job_id]))
    return jobs


def waiting_place(session: Session, job: Job, *, now: dt.datetime) -> int:
    """Return how many jobs `waiting_jobs` would have before this one."""
    # Row values: the order of `waiting_jobs`.
    is_before = tuple_(-Job.priority, Job.due_at, Job.id) < (-job.priority, job.due_at, job.id)
    count = select(func.count()).select_from(Job).where(*_may_be_placed(now), is_before)
    return session.scalar(count) or 0


def _may_be_placed(now: dt.datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        *WAITS,
        Job.due_at <= now,
        Job.sweep_id.not_in(select(Sweep.id).where(Sweep.is_paused)),
    )


def _failed_agents(session: Session, job_ids: Sequence[int]) -> dict[int, set[str]]:
    """Return job to agents on which an attempt of it was lost or void for a reason of their own."""
    found: dict[int, set[str]] = {}
    for begin in range(0, len(job_ids), _IDS_A_QUERY):
        ends = session.execute(
            select(Attempt.job_id, Rank.agent_id, Rank.ended, Rank.disturbed_by)
            .join(Rank, Rank.attempt_id == Attempt.id)
            .where(
                Attempt.job_id.in_(job_ids[begin : begin + _IDS_A_QUERY]),
                or_(
                    and_(Attempt.state == AttemptState.LOST, Rank.ended.is_not(None)),
                    and_(_WAS_STALLED, Rank.ended.is_(None)),
                    Rank.disturbed_by.is_not(None),
                ),
            )
        )
        for job_id, agent_id, ended, disturbed_by in ends:
            failure = (ended or {}).get("failure")
            is_own = failure and failure.get("kind") != FailureKind.PEER_LOST.value
            if disturbed_by is not None or is_own or ended is None:
                found.setdefault(job_id, set()).add(agent_id)
    return found
