"""Sorts waiting jobs into the order in which they are offered idle agents.

A higher priority goes first. Within a priority, sweeps share the farm: next is the sweep with the
fewest agents at work, and among equals the one that has waited longest for an agent. So of two
sweeps with enough jobs, neither has more agents than the other for longer than a gang lasts. A
sweep with no agents at work goes first.

Within a sweep, all first repetitions go before the second ones, and so on. So a sweep that is
stopped early has every cell, and the repetitions of a cell are spread over time, which matters
because consecutive runs are correlated. Within such a round the job that has waited longest goes
first, and among jobs submitted together the lower id. Sweeps number the jobs of each round in a
random order.

Critical jobs are the exception to both rules. Jobs are critical if running them, in as many waves
as the agents allow, takes at least half as long as all remaining work spread evenly over the
agents. They decide when the queue ends. They go before the others of their round, the longest first
(Graham 1969), and among about equally long ones the widest, while there is room for it. Once each
sweep has agents at work, sweeps with critical jobs are next. As a queue gets shorter, more of its
jobs become critical, so no long job is left over at the end.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias, TypeVar

from farm.gang.snapshots import GangAtWork, WaitingJob

# Lengths of one class differ by 9 % at most, which is no better known.
_CLASSES_AN_OCTAVE = 8
# Critical is what takes so much of what is left: before it come drains and those of other sweeps.
_CRITICAL_RATIO = 0.5
_MOST_WAVES = 4  # what comes in more of them is short beside what is left, and can be fitted in
_Level = tuple[int, int]
# What a job asks of its agents, its priority and its sweep.
TurnGroup: TypeAlias = tuple[Hashable, int, int]
_T = TypeVar("_T")
_job_id, _waited_s = attrgetter("job_id"), attrgetter("waited_s")
_repetition = attrgetter("repetition")


class FairShareOrder:
    """Goes once over all jobs; the caller reports a job that got agents before the next one.

    `since_start_s`: by sweep, for how long it has been given nothing, where that is known;
    `waited_more_s`: for how much longer all jobs have waited than they say.
    """

    def __init__(
        self,
        jobs: Collection[WaitingJob],
        gangs: Collection[GangAtWork] = (),
        *,
        agent_count: int = 0,
        since_start_s: Mapping[int, float] | None = None,
        waited_more_s: float = 0.0,
    ) -> None:
        self._gangs = gangs
        self._waited_more_s = waited_more_s
        self._agent_count = agent_count
        self._at_work: Counter[int] = Counter()
        self._unserved_s = dict(since_start_s or {})
        for gang in gangs:
            self._at_work[gang.sweep_id] += len(gang.agent_ids)
            since_s = self._unserved_s.get(gang.sweep_id, math.inf)
            self._unserved_s[gang.sweep_id] = min(since_s, gang.age_s)
        self._levels: dict[int, dict[int, list[WaitingJob]]] = {}
        for job in jobs:
            self._levels.setdefault(job.priority, {}).setdefault(job.sweep_id, []).append(job)
        self._waits_s: dict[int, float] = {}  # the longest of each sweep of this level
        self._start_count = 0
        self._served_at: dict[int, int] = {}  # by sweep: the number of its latest start

    def __iter__(self) -> Iterator[WaitingJob]:
        for priority in sorted(self._levels, reverse=True):
            yield from self._level(self._levels[priority])

    def _level(self, sweeps: Mapping[int, list[WaitingJob]]) -> Iterator[WaitingJob]:
        self._waits_s = {
            i: max(map(_waited_s, own)) + self._waited_more_s for i, own in sweeps.items()
        }
        critical_s = self._critical_s([job for own in sweeps.values() for job in own])
        for own in sweeps.values():
            own[:] = in_order(own, critical_s=critical_s)
            own.reverse()  # the first is popped from the end
        queues = [(*self._place(i, own, critical_s), i, own) for i, own in sweeps.items()]
        heapq.heapify(queues)
        while queues:
            _, _, _, sweep_id, own = queues[0]
            count, is_critical = self._at_work[sweep_id], _is_critical(own[-1], critical_s)
            # As long as its place in line is the same; ten thousand calls to ask would be felt.
            while (
                own
                and self._at_work[sweep_id] == count
                and _is_critical(own[-1], critical_s) is is_critical
            ):
                yield own.pop()
            if own:
                place = self._place(sweep_id, own, critical_s)
                heapq.heapreplace(queues, (*place, sweep_id, own))
            else:
                heapq.heappop(queues)

    def _place(
        self, sweep_id: int, own: list[WaitingJob], critical_s: float
    ) -> tuple[_Level, float, int]:
        """Return the sweep's place in line, the least first."""
        count = self._at_work[sweep_id]
        level = (1 if _is_critical(own[-1], critical_s) else 2, count) if count else (0, 0)
        # Sweeps served in this decision have not waited since: the first of them goes first.
        return level, -self._unserved(sweep_id), self._served_at.get(sweep_id, 0)

    def _critical_s(self, jobs: Collection[WaitingJob]) -> float:
        """Return from which length on jobs are critical; inf: none is.

        The jobs of at least that length need W agents in all: that is W / agents waves, rounded up.
        """
        known = [(job.expected_s, job.agent_count) for job in jobs if job.expected_s is not None]
        if not known or not self._agent_count:
            return math.inf
        # What is not known is taken to be as it is with the others.
        work_s = sum(length_s * count for length_s, count in known) * len(jobs) / len(known)
        work_s += sum(len(gang.agent_ids) * (gang.remaining_s or 0.0) for gang in self._gangs)
        left_s = work_s / self._agent_count
        critical_s, needed = math.inf, 0
        for length_s, count in sorted(
            (pair for pair in known if pair[0] >= left_s / _MOST_WAVES), reverse=True
        ):
            needed += count
            if math.ceil(needed / self._agent_count) * length_s >= _CRITICAL_RATIO * left_s:
                critical_s = length_s
        return critical_s

    def started(self, job: WaitingJob) -> None:
        """Note that the job has its agents."""
        self._at_work[job.sweep_id] += job.agent_count
        self._unserved_s[job.sweep_id] = 0.0
        self._start_count += 1
        self._served_at[job.sweep_id] = self._start_count

    def waited_s(self, job: WaitingJob) -> float:
        """Return for how long the job has waited."""
        return job.waited_s + self._waited_more_s

    def unserved_s(self, job: WaitingJob) -> float:
        """Return for how long the job's sweep has waited and been given nothing."""
        return self._unserved(job.sweep_id)

    def _unserved(self, sweep_id: int) -> float:
        return min(self._waits_s[sweep_id], self._unserved_s.get(sweep_id, math.inf))

    def is_at_work(self, job: WaitingJob) -> bool:
        """Whether the job's sweep has a gang."""
        return self._at_work[job.sweep_id] > 0

    def older_count(self, job: WaitingJob) -> int:
        """Return how many sweeps of the job's priority have waited at least as long as its own."""
        waited_s = self._waits_s[job.sweep_id]
        return sum(1 for other_s in self._waits_s.values() if other_s >= waited_s)


def choose_by_turns(
    queue: Sequence[_T], *, most: int, group_of: Callable[[_T], TurnGroup]
) -> list[_T]:
    """Choose the jobs that one round looks at from a queue that is longer than `most`, in order.

    Jobs that ask their agents for different things have equal shares, since those that wait for
    agents at work must not hide those that idle ones could serve. Among jobs that ask for the
    same, a higher priority goes first, and the sweeps of one priority have equal shares. A share
    that is not used up falls to the others.
    """
    if len(queue) <= most:
        return list(queue)
    kinds: dict[Hashable, dict[int, dict[int, list[int]]]] = {}
    for index, one in enumerate(queue):
        kind, priority, sweep_id = group_of(one)
        kinds.setdefault(kind, {}).setdefault(priority, {}).setdefault(sweep_id, []).append(index)
    by_turns = _by_turns([_sweeps_by_turns(priorities) for priorities in kinds.values()])
    return [queue[index] for index in sorted(itertools.islice(by_turns, most))]


def _sweeps_by_turns(priorities: Mapping[int, Mapping[int, list[int]]]) -> Iterator[int]:
    for priority in sorted(priorities, reverse=True):
        yield from _by_turns(priorities[priority].values())


def _by_turns(parts: Iterable[Iterable[int]]) -> Iterator[int]:
    """Yield one of each part after another, until all are empty."""
    left = [iter(part) for part in parts]
    while left:
        remaining = []
        for part in left:
            for index in part:
                yield index
                remaining.append(part)
                break
        left = remaining


def _is_critical(job: WaitingJob, critical_s: float) -> bool:
    return job.expected_s is not None and job.expected_s >= critical_s


def in_order(jobs: Collection[WaitingJob], *, critical_s: float = math.inf) -> list[WaitingJob]:
    """Return the jobs of one sweep and priority, the first before all others.

    First repetitions come before second ones; of one round those that are critical come first.

    Stable sorts by one attribute after another, since ten thousand tuples to compare cost more.
    """
    brief = [job for job in jobs if not _is_critical(job, critical_s)]
    brief.sort(key=_job_id)
    brief.sort(key=_waited_s, reverse=True)
    critical = [job for job in jobs if _is_critical(job, critical_s)]
    ordered = sorted(critical, key=_longest_first) + brief
    ordered.sort(key=_repetition)
    return ordered


def _longest_first(job: WaitingJob) -> tuple[float, ...]:
    assert job.expected_s is not None
    length = round(math.log2(max(job.expected_s, 1e-3)) * _CLASSES_AN_OCTAVE)
    return -length, -job.agent_count, -job.expected_s, -job.waited_s, job.job_id
