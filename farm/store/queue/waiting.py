"""Reads the queue: jobs that wait for agents, by priority and then by how long they have waited."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState, JobState
from farm.gang.retries import DEFAULT_POLICY, RetryPolicy, is_pausing
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.messages.trainer_lines import FailureKind
from farm.placement.agent_index import JobKind
from farm.placement.fair_share import TurnGroup, choose_by_turns
from farm.placement.scheduling import UnschedulableReasons
from farm.store.engine import IDS_A_QUERY
from farm.store.measurements.repetitions import CellKey, CellServers, cell_servers
from farm.store.sweeps.budgets import IS_HELD
from farm.store.tables import AttemptRow, JobRow, RankRow, SweepRow

_ROWS_AT_ONCE = 5000
# A round looks at no more jobs than that.
MOST_LOOKED_AT = 10_000
# For so many jobs at the head of the queue a round looks up who has measured their cells.
_SPREAD_COUNT = 500
# The ranks that said nothing are then the ones at fault.
_WAS_STALLED = AttemptRow.failure_kind == FailureKind.STALLED.value
_NO_CELL = (0, "")
# Who has measured which cells.
ServersOf: TypeAlias = Callable[[Session, Collection[CellKey]], Mapping[CellKey, CellServers]]
# Held or not, and due or not yet.
IS_WAITING = and_(JobRow.state == JobState.WAITING, JobRow.cancel_requested.is_(False))
_OF_NO_HELD_SWEEP = JobRow.sweep_id.not_in(select(SweepRow.id).where(IS_HELD))


@dataclass(slots=True)
class QueuedJob:
    """A waiting job, with those of its columns that its place in the queue depends on."""

    job: WaitingJob
    due_at: dt.datetime
    attempt_count: int
    cell_hash: str
    repetition: int
    kind: JobKind
    _spread: tuple[WaitingJob, CellServers, WaitingJob] | None = None

    def spread_over(self, measured: CellServers) -> WaitingJob:
        """Return the job with the agents that measured its cell; a cached object if unchanged."""
        if (
            self._spread is None
            or self._spread[0] is not self.job
            or self._spread[1] is not measured
        ):
            job = dataclasses.replace(
                self.job,
                measured_by=measured.run_counts,
                measured_on=frozenset(measured.fingerprints),
            )
            self._spread = self.job, measured, job
        return self._spread[2]

    @property
    def group(self) -> TurnGroup:
        """The group that it shares its part of a round with, see `choose_by_turns`."""
        # Those that failed before may wait for other agents than those that are idle.
        return (self.kind, self.attempt_count > 0), self.job.priority, self.job.sweep_id

    @property
    def place(self) -> tuple[int, dt.datetime, int]:
        """The sort key of the queue: higher priority first, then the longer wait."""
        return -self.job.priority, self.due_at, self.job.job_id


def waiting_jobs(
    session: Session,
    *,
    now: dt.datetime,
    agents: Collection[LiveAgent] | None = None,
    limit: int | None = None,
    is_spread: bool = True,
    expected_s: Mapping[str, float] | None = None,
    policy: RetryPolicy = DEFAULT_POLICY,
) -> list[WaitingJob]:
    """Return the jobs that may be placed now: higher priority first, then the longer wait.

    A job in the pause before its next attempt is not among them, nor is one of a held sweep, nor
    one that the `agents`, where they are given, could not serve if all of them were idle. Where
    more than `limit` are left, or `MOST_LOOKED_AT`, `choose_by_turns` chooses those it returns.
    `is_spread`: look up who has measured their cells, over whom repetitions are to be spread.
    `expected_s`: by cell hash, how long jobs take, if that is known.
    """
    most = MOST_LOOKED_AT if limit is None else limit
    rows = (
        row
        for row in queue_rows_in_order(session, IS_WAITING, _OF_NO_HELD_SWEEP)
        if not is_pausing(row.due_at, now=now, attempt_count=row.attempt_count, policy=policy)
    )
    kinds = Kinds()
    found = _first_of_groups(rows, kinds, agents, most=most)
    queue = [queued_job(row, kinds, now=now, expected_s=expected_s or {}) for row in found]
    queue = choose_by_turns(queue, most=most, group_of=attrgetter("group"))
    return with_history(session, queue, spread_count=_SPREAD_COUNT if is_spread else 0)


def queue_rows_in_order(session: Session, *conditions: ColumnElement[bool]) -> Iterable[Any]:
    """Read those rows of `queued_rows` for which the conditions hold, in the queue's order."""
    query = (
        queued_rows().where(*conditions).order_by(JobRow.priority.desc(), JobRow.due_at, JobRow.id)
    )
    return session.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})


def _first_of_groups(
    rows: Iterable[Any], kinds: Kinds, agents: Collection[LiveAgent] | None, *, most: int
) -> Iterator[Any]:
    """Pass over what the agents could not serve, and over more than anybody looks at."""
    unschedulable = None if agents is None else UnschedulableReasons(agents)
    counts: Counter[tuple[JobKind, bool, int, int]] = Counter()
    for row in rows:
        kind = kinds.of(row)
        group = kind, row.attempt_count > 0, row.priority, row.sweep_id
        is_servable = unschedulable is None or unschedulable.of(kind) is None
        if is_servable and counts[group] < most:
            counts[group] += 1
            yield row


class Kinds:
    """The kinds of jobs in a queue; each is created once, since thousands of jobs are alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], JobKind] = {}

    def of(self, row: Any) -> JobKind:
        """Return the kind of a row of `queued_rows`."""
        labels = (row.labels or {}).items()
        key = (row.agent_count, *row.requires, None, *labels)
        known = self._known.get(key)
        if known is None:
            known = frozenset(row.requires), frozenset(labels), row.agent_count
            self._known[key] = known
        return known


def queued_rows() -> Select[Any]:
    """Return the query for the rows of `queued_job`: few columns, since a queue is long."""
    return select(
        JobRow.id,
        JobRow.sweep_id,
        JobRow.cell_hash,
        JobRow.repetition,
        JobRow.agent_count,
        JobRow.requires,
        JobRow.priority,
        JobRow.due_at,
        JobRow.spec["labels"].label("labels"),  # specifications are wide
        JobRow.attempt_count,
    )


def queued_job(
    row: Any, kinds: Kinds, *, now: dt.datetime, expected_s: Mapping[str, float]
) -> QueuedJob:
    """Make a job from a row of `queued_rows`, without its history."""
    kind = kinds.of(row)
    requires, labels, agent_count = kind
    job = WaitingJob(
        job_id=row.id,
        sweep_id=row.sweep_id,
        repetition=row.repetition,
        agent_count=agent_count,
        requires=requires,
        labels=labels,
        priority=row.priority,
        waited_s=(now - row.due_at).total_seconds(),
        expected_s=expected_s.get(row.cell_hash),
    )
    return QueuedJob(job, row.due_at, row.attempt_count, row.cell_hash, row.repetition, kind)


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


def waiting_count(session: Session) -> int:
    """Return how many jobs wait, those of held sweeps and in a pause of their own among them."""
    return session.scalar(select(func.count()).select_from(JobRow).where(IS_WAITING)) or 0


def _failed_agents(session: Session, job_ids: Sequence[int]) -> dict[int, set[str]]:
    """Return job to agents on which an attempt of it was lost or void for a reason of their own."""
    found: dict[int, set[str]] = {}
    for begin in range(0, len(job_ids), IDS_A_QUERY):
        ends = session.execute(
            select(AttemptRow.job_id, RankRow.agent_id, RankRow.ended, RankRow.disturbed_by)
            .join(RankRow, RankRow.attempt_id == AttemptRow.id)
            .where(
                AttemptRow.job_id.in_(job_ids[begin : begin + IDS_A_QUERY]),
                or_(
                    and_(AttemptRow.state == AttemptState.LOST, RankRow.ended.is_not(None)),
                    and_(_WAS_STALLED, RankRow.ended.is_(None)),
                    RankRow.disturbed_by.is_not(None),
                ),
            )
        )
        for job_id, agent_id, ended, disturbed_by in ends:
            failure = (ended or {}).get("failure")
            is_own = failure and failure.get("kind") != FailureKind.PEER_LOST.value
            if disturbed_by is not None or is_own or ended is None:
                found.setdefault(job_id, set()).add(agent_id)
    return found
