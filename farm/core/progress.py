"""About how long a sweep will take from now on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


class FinishedJob(Protocol):
    """`duration_s`: how long it kept its agents, from the lease to its end."""

    @property
    def world_size(self) -> int: ...

    @property
    def duration_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedJob:
    """`elapsed_s`: since its gang was leased; 0 while it waits."""

    world_size: int
    elapsed_s: float = 0.0


def remaining_s(
    finished: Collection[FinishedJob], unfinished: Collection[UnfinishedJob], *, agent_count: int
) -> float | None:
    """Estimate the time until the last job ends, were the farm's agents all for this sweep.

    A job of w ranks is expected to take what finished jobs of w ranks took on average, or, as long
    as there are none, what all finished jobs took; A // w of them run at once on A agents. Widths
    are taken one after another, so a farm that fills its gaps with narrow jobs is done sooner.
    None as long as no job has finished, or where a job is wider than the farm.
    """
    if not unfinished:
        return 0.0
    if not finished or any(job.world_size > agent_count for job in unfinished):
        return None
    by_width: dict[int, list[float]] = {}
    for done in finished:
        by_width.setdefault(done.world_size, []).append(done.duration_s)
    overall_s = _mean([done.duration_s for done in finished])
    expected_s = {width: _mean(durations_s) for width, durations_s in by_width.items()}
    total_s = 0.0
    longest_s = 0.0
    for job in unfinished:
        left_s = max(expected_s.get(job.world_size, overall_s) - job.elapsed_s, 0.0)
        total_s += left_s / (agent_count // job.world_size)
        longest_s = max(longest_s, left_s)
    return max(total_s, longest_s)


def _mean(values_s: list[float]) -> float:
    return sum(values_s) / len(values_s)
