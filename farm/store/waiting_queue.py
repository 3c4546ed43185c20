"""The queue as one scheduler keeps it: read whole once, and then what has changed.

Ten thousand jobs that wait are most of what a round reads, and from one round to the next hardly
any of them change. What is kept is believed after a look at the store that is cheap: how many jobs
wait, and sums over their ids and attempts. Where these differ, ids are compared, and rows that are
others are read. A change that leaves every sum as it was is found within `_COMPARED_AFTER_S`; until
then a job that must not be placed is refused when its gang is leased.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.core.retries import DEFAULT_POLICY, RetryPolicy, is_pausing
from farm.core.scheduling import hopeless_kinds
from farm.core.turns import shares
from farm.core.views import LiveAgent, WaitingJob
from farm.store import waiting
from farm.store.repetitions import Cell, CellServers, cell_servers
from farm.store.tables import Job, Sweep
from farm.store.waiting import (
    WAITS,
    Kinds,
    QueuedJob,
    queued_job,
    queued_rows,
    with_history,
)

_MOST_KEPT = 50_000  # where more wait, they are not kept
_IDS_A_QUERY = 1000  # databases limit the parameters of one statement
_COMPARED_AFTER_S = 60.0
_BELIEVED_RATIO = 20.0  # of the time that it took to find out
_SAME_LENGTH_RATIO = 0.05  # an expectation is not known any better
_PRIME = 99_991  # of what is left of ids sums of squares stay far below the largest integer

# How many jobs, and sums of their ids, of squares that follow from these, and of their attempts.
_Marks: TypeAlias = tuple[int, int, int, int]
_NOTHING: _Marks = (0, 0, 0, 0)
_place, _kind, _group = attrgetter("place"), attrgetter("kind"), attrgetter("group")


class WaitingQueue:
    """One process's, and not for several threads. What jobs say they have waited is as of `epoch`.

    So nothing has to be made anew only because time passes, see `waited_more_s`.
    """

    def __init__(self, *, epoch: dt.datetime, policy: RetryPolicy = DEFAULT_POLICY) -> None:
        self._epoch = epoch
        self._policy = policy
        self._kept: dict[int, QueuedJob] = {}
        self._in_order: list[QueuedJob] | None = None
        self._marks = _NOTHING
        self._compared_at = epoch
        self._expected_s: Mapping[str, float] = {}
        self._changes = 0
        self._measured = _MeasuredCells()
        self._kinds = Kinds()
        self._looked_at: list[QueuedJob] = []
        self.version: Hashable = None  # of what `jobs` has returned last: equal where that is

    def waited_more_s(self, now: dt.datetime) -> float:
        """Return for how much longer all jobs have waited than they say."""
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

        An expected length that has changed little may be the one before.
        """
        marks = _read_marks(session)
        if marks[0] > _MOST_KEPT:
            self._kept, self._looked_at, self._kinds = {}, [], Kinds()
            self._marks, self.version = _NOTHING, None
            self._changed()
            return None
        if marks != self._marks:
            self._add_newer(session)
        is_old = abs((now - self._compared_at).total_seconds()) >= _COMPARED_AFTER_S
        if marks != self._marks or is_old:
            self._compare(session)
            self._marks, self._compared_at = marks, now
        self._expect(expected_s)
        paused = set(session.scalars(select(Sweep.id).where(Sweep.is_paused)))
        may_be_placed = [
            one
            for one in self._sorted()
            if one.job.sweep_id not in paused and (one.due_at <= now or not self._pauses(one, now))
        ]
        kinds = set(map(_kind, may_be_placed))
        hopeless = frozenset(() if agents is None else hopeless_kinds(kinds, agents))
        version = self._changes, len(may_be_placed), frozenset(paused), hopeless
        if version != self.version:
            servable = [one for one in may_be_placed if one.kind not in hopeless]
            self._looked_at = shares(servable, most=waiting.MOST_LOOKED_AT, group_of=_group)
            self.version = version
        return with_history(session, self._looked_at, servers_of=self._measured.servers)

    def left(self, job_id: int) -> None:
        """Note that a job waits no more: whoever asks has leased its gang."""
        gone = self._kept.pop(job_id, None)
        if gone is not None:
            self._count(gone, -1)
            if self._in_order is not None:
                del self._in_order[bisect_left(self._in_order, gone.place, key=_place)]

    def _pauses(self, one: QueuedJob, now: dt.datetime) -> bool:
        return is_pausing(one.due_at, now=now, attempt_count=one.attempt_count, policy=self._policy)

    def _sorted(self) -> list[QueuedJob]:
        if self._in_order is None:
            self._in_order = sorted(self._kept.values(), key=_place)
        return self._in_order

    def _add_newer(self, session: Session) -> None:
        """Read what was added behind all that is kept: mostly that is all that has changed."""
        last_id = max(self._kept, default=0)
        for row in session.execute(queued_rows().where(*WAITS, Job.id > last_id)):
            self._count(self._add(row), 1)
            self._in_order = None  # a sweep of thousands is sorted sooner than put in one by one

    def _add(self, row: Any) -> QueuedJob:
        one = queued_job(row, self._kinds, now=self._epoch, expected_s=self._expected_s)
        self._kept[row.id] = one
        return one

    def _count(self, one: QueuedJob, sign: int) -> None:
        """Let the marks follow what is kept."""
        job_id = one.job.job_id
        of_it = (1, job_id, (job_id % _PRIME) ** 2, one.attempt_count)
        count, ids, squares, attempts = (
            mark + sign * mine for mark, mine in zip(self._marks, of_it, strict=True)
        )
        self._marks = count, ids, squares, attempts
        self._changes += 1

    def _changed(self) -> None:
        """What is kept is another than it was, in who knows which order."""
        self._in_order = None
        self._changes += 1

    def _compare(self, session: Session) -> None:
        """Read what is not as it is kept, and forget what waits no more."""
        found = session.execute(select(Job.id, Job.due_at, Job.attempt_count).where(*WAITS))
        there = {job_id: (due_at, attempt_count) for job_id, due_at, attempt_count in found}
        self._kept = {
            job_id: one
            for job_id, one in self._kept.items()
            if there.get(job_id) == (one.due_at, one.attempt_count)
        }
        for row in _rows(session, there.keys() - self._kept.keys()):
            self._add(row)
        self._changed()

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
    """Who has measured which cells, by which repetitions are spread, and nothing else.

    What took long to find out, since much was measured, is believed for longer.
    """

    def __init__(self) -> None:
        self._known: dict[Cell, CellServers | None] = {}
        self._until_s = 0.0  # by the monotonic clock

    def servers(self, session: Session, cells: Collection[Cell]) -> dict[Cell, CellServers]:
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
            self._until_s = now_s + _BELIEVED_RATIO * (now_s - begun_s)
        known = {cell: self._known[cell] for cell in cells}
        return {cell: servers for cell, servers in known.items() if servers is not None}


def _are_alike(a_s: float | None, b_s: float | None) -> bool:
    if a_s is None or b_s is None:
        return a_s is b_s
    return abs(a_s - b_s) <= _SAME_LENGTH_RATIO * a_s


def _read_marks(session: Session) -> _Marks:
    rest = Job.id % _PRIME
    sums = (func.sum(Job.id), func.sum(rest * rest), func.sum(Job.attempt_count))
    count, ids, squares, attempts = session.execute(select(func.count(), *sums).where(*WAITS)).one()
    return count, int(ids or 0), int(squares or 0), int(attempts or 0)


def _rows(session: Session, job_ids: Collection[int]) -> Iterator[Any]:
    ids = sorted(job_ids)
    for begin in range(0, len(ids), _IDS_A_QUERY):
        some_ids = ids[begin : begin + _IDS_A_QUERY]
        yield from session.execute(queued_rows().where(Job.id.in_(some_ids)))
