"""What one scheduling decision has refused already."""

from __future__ import annotations

import math
from typing import TypeAlias

from farm.gang.views import WaitingJob
from farm.placement.agent_pool import AgentPool

# Capabilities, labels, how many agents, and by which sweep and priority, if by one that is due.
_Question: TypeAlias = tuple[
    frozenset[str], frozenset[tuple[str, str]], int, tuple[int, int] | None
]


class FutileRequests:
    """What was asked for in vain, so that of thousands of jobs that ask for the same one is asked.

    While nothing changes in the pool, a second one has no other fate than the first: it neither
    finds a gang nor has agents kept for it. A briefer one may still be lent what is reserved.

    Where agents share cores everyone is asked: gangs are looked for greedily, and of fewer agents
    that overlap like the links of a chain a larger gang may be found.
    """

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool
        self._is_disjoint = pool.index.is_disjoint
        # By what was asked for: at which change of the pool, and by how brief a job.
        self._refused: dict[_Question, tuple[int, float]] = {}

    def is_again(self, job: WaitingJob, *, is_due: bool) -> bool:
        """Whether the job may be passed over, since the same was refused to one before it."""
        if job.avoid or not self._is_disjoint:
            return False
        # Written out, since most of a long queue is passed over here.
        due = (job.sweep_id, job.priority) if is_due else None
        found = self._refused.get((job.requires, job.labels, job.rank_count, due))
        if found is None or found[0] != self._pool.change_count:
            return False
        return job.expected_s is None or job.expected_s >= found[1]

    def note(self, job: WaitingJob, *, is_due: bool, at: int) -> None:
        """Remember what was refused to the job when the pool had changed `at` times."""
        if not job.avoid:
            self._refused[_question(job, is_due=is_due)] = at, _length_s(job)


def _question(job: WaitingJob, *, is_due: bool) -> _Question:
    # For whom agents are kept once they are due is a matter of what their sweep has been given.
    due = (job.sweep_id, job.priority) if is_due else None
    return job.requires, job.labels, job.rank_count, due


def _length_s(job: WaitingJob) -> float:
    return math.inf if job.expected_s is None else job.expected_s
