"""Keeps the scheduler's copy of the job queue: read whole once, then only the changes.

Reading a long queue is most of the work of a round, and few of its jobs change from one round to
the next. So each round asks the database for the key of each waiting job: id, due time and number
of attempts, since nothing else of a waiting job changes. Only jobs with a new key are read.

Comparing keys finds every change, and code that changes jobs has nothing to do for it. A version
number that such code increments would be worse. One number for the whole queue is a row that every
transaction locks until it commits, and numbers from a sequence can become visible after higher
ones.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from farm.gang.retries import DEFAULT_POLICY, RetryPolicy, is_pausing
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.fair_share import choose_by_turns
from farm.placement.scheduling import unschedulable_kinds
from farm.store.engine import IDS_A_QUERY
from farm.store.measurements.repetitions import CellKey, CellServers, cell_servers
from farm.store.queue import waiting
from farm.store.queue.waiting import (
    IS_WAITING,
    Kinds,
    QueuedJob,
    queued_job,
    queued_rows,
    with_history,
)
from farm.store.sweeps.budgets import IS_HELD
from farm.store.tables import JobRow, SweepRow

_MOST_KEPT = 50_000
_KEPT_RATIO = 20.0  # of the time that it took to read
_SAME_LENGTH_RATIO = 0.05  # an expectation is not known any better

# A job's id, and all of it that can change while it waits: its due time, as the database writes it
# (to parse it takes as long as all the rest), and its number of attempts.
_Key: TypeAlias = tuple[int, str, int]
_kind, _group = attrgetter("kind"), attrgetter("group")


class WaitingQueue:
    """The waiting jobs that one thread keeps between its rounds.

    How long a job has waited is computed once, as of `epoch`, and not again because time passes:
    see `waited_more_s`. Where more than `most_kept` jobs wait, none are kept.
    """

    def __init__(
        self,
        *,
        epoch: dt.datetime,
        policy: RetryPolicy = DEFAULT_POLICY,
        most_kept: int = _MOST_KEPT,
    ) -> None:
        self._most_kept = most_kept
        self._epoch = epoch
        self._policy = policy
        self._kept: dict[_Key, QueuedJob] = {}  # in the queue's order
        self._expected_s: Mapping[str, float] = {}
        self._changes = 0
        self._measured = _MeasuredCells()
        self._kinds = Kinds()
        self._looked_at: list[QueuedJob] = []
        self.version: Hashable = None  # of what `jobs` has returned last: equal where that is

    def waited_more_s(self, now: dt.datetime) -> float:
        """Return the time to add to each job's `waited_s`."""
        return (now - self._epoch).total_seconds()

    def jobs(
        self,
        session: Session,
        *,
        now: dt.datetime,
        agents: Collection[LiveAgent] | None = None,
        expected_s: Mapping[str, float],
    ) -> list[WaitingJob] | None:
        """Return what `waiting_jobs` would, as the session sees the store; None: too many wait.

        Expected lengths may be slightly out of date: small changes of them are not applied.
        """
        if not self._refresh(session):
            return None
        self._expect(expected_s)
        held = set(session.scalars(select(SweepRow.id).where(IS_HELD)))
        may_be_placed = [
            one
            for one in self._kept.values()
            if one.job.sweep_id not in held and (one.due_at <= now or not self._pauses(one, now))
        ]
        kinds = set(map(_kind, may_be_placed))
        unschedulable = frozenset(() if agents is None else unschedulable_kinds(kinds, agents))
        version = self._changes, len(may_be_placed), frozenset(held), unschedulable
        if version != self.version:
            servable = [one for one in may_be_placed if one.kind not in unschedulable]
            self._looked_at = choose_by_turns(
                servable, most=waiting.MOST_LOOKED_AT, group_of=_group
            )
            self.version = version
        return with_history(session, self._looked_at, servers_of=self._measured.servers)

    def _pauses(self, one: QueuedJob, now: dt.datetime) -> bool:
        return is_pausing(one.due_at, now=now, attempt_count=one.attempt_count, policy=self._policy)

    def _refresh(self, session: Session) -> bool:
        """Read what has changed in the store; return False if too many jobs wait."""
        keys = _read_keys(session, most=self._most_kept + 1)
        if len(keys) > self._most_kept:
            self._kept, self._looked_at, self._kinds = {}, [], Kinds()
            self.version = None
            self._changes += 1
            return False
        kept = {key: one for key, one in self._kept.items() if key in keys}
        new = {key[0]: key for key in keys - kept.keys()}
        if new or len(kept) < len(self._kept):
            self._changes += 1
        if new:
            for row in _rows(session, new):
                one = queued_job(row, self._kinds, now=self._epoch, expected_s=self._expected_s)
                kept[new[row.id]] = one
            kept = dict(sorted(kept.items(), key=lambda item: item[1].place))
        self._kept = kept
        return True

    def _expect(self, expected_s: Mapping[str, float]) -> None:
        if expected_s is self._expected_s:
            return
        self._expected_s = expected_s
        for one in self._kept.values():
            length_s = expected_s.get(one.cell_hash)
            if not _are_alike(one.job.expected_s, length_s):
                one.job = dataclasses.replace(one.job, expected_s=length_s)
                self._changes += 1


class _MeasuredCells:
    """A cache of who has measured which cells, by which repetitions are spread over agents.

    An answer that took long to read, since much was measured, is kept for longer.
    """

    def __init__(self) -> None:
        self._known: dict[CellKey, CellServers | None] = {}
        self._until_s = 0.0  # by the monotonic clock

    def servers(self, session: Session, cells: Collection[CellKey]) -> dict[CellKey, CellServers]:
        """Return what `cell_servers` does, or did not long ago."""
        begun_s = time.monotonic()
        is_old = begun_s >= self._until_s
        if is_old:
            self._known = {}
        if missing := [cell for cell in cells if cell not in self._known]:
            found = cell_servers(session, missing)
            self._known |= {cell: found.get(cell) for cell in missing}
        if is_old:
            now_s = time.monotonic()
            self._until_s = now_s + _KEPT_RATIO * (now_s - begun_s)
        known = {cell: self._known[cell] for cell in cells}
        return {cell: servers for cell, servers in known.items() if servers is not None}


def _are_alike(a_s: float | None, b_s: float | None) -> bool:
    if a_s is None or b_s is None:
        return a_s is b_s
    return abs(a_s - b_s) <= _SAME_LENGTH_RATIO * a_s


def _read_keys(session: Session, *, most: int) -> set[_Key]:
    """Return the keys of so many waiting jobs at the most."""
    columns = select(JobRow.id, cast(JobRow.due_at, Text), JobRow.attempt_count)
    rows = session.execute(columns.where(IS_WAITING).limit(most))
    return {(job_id, due_at, attempt_count) for job_id, due_at, attempt_count in rows}


def _rows(session: Session, job_ids: Collection[int]) -> Iterator[Any]:
    ids = sorted(job_ids)
    for begin in range(0, len(ids), IDS_A_QUERY):
        some_ids = ids[begin : begin + IDS_A_QUERY]
        yield from session.execute(queued_rows().where(JobRow.id.in_(some_ids)))
