"""How far a sweep is, and about how long it will take. None where nothing is known yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from farm.core.lifecycle import FINAL_JOB_STATES, JobState


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`done_ratio` counts jobs, whatever their end; `remaining_s` None: nothing to go by."""

    total_count: int
    finished_count: int
    done_ratio: float
    remaining_s: float | None


def progress(
    counts: Mapping[JobState, int],
    *,
    finished: Collection[FinishedJob],
    unfinished: Collection[UnfinishedJob],
    agent_count: int,
) -> Progress:
    """Sum up a sweep from its jobs' states and, for the time left, from what its jobs took."""
    total_count = sum(counts.values())
    finished_count = sum(counts.get(state, 0) for state in FINAL_JOB_STATES)
    return Progress(
        total_count=total_count,
        finished_count=finished_count,
        done_ratio=finished_count / total_count if total_count else 1.0,
        remaining_s=remaining_s(finished, unfinished, agent_count=agent_count),
    )


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
