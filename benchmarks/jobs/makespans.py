"""Computes makespan, overhead and idle time of rounds of short jobs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.errors import FarmError


@dataclass(frozen=True, slots=True)
class Played:
    """A round: how long it took, and of each job how long its steps did.

    `processor_s`: what all processes together have had of the cores meanwhile.
    """

    makespan_s: float
    steps_s: tuple[float, ...]
    processor_s: float = 0.0


def each_round(job_count: int, *, round_count: int) -> int:
    """Return how many of the jobs each round has.

    Raises:
        FarmError: not all rounds would have as many, and some jobs would not be played at all.
    """
    each, left = divmod(job_count, round_count)
    if left:
        above = (each + 1) * round_count
        fitting = f"{each * round_count} or {above}" if each else str(above)
        raise FarmError(
            f"--jobs {job_count}: expected a multiple of {round_count}, the number of rounds; "
            f"give {fitting}"
        )
    return each


def job_count_of(rounds: Sequence[Played]) -> int:
    return sum(len(one.steps_s) for one in rounds)


def makespan_s(rounds: Sequence[Played]) -> float:
    return sum(one.makespan_s for one in rounds)


def steps_s_a_job(rounds: Sequence[Played]) -> float:
    return sum(sum(one.steps_s) for one in rounds) / job_count_of(rounds)


def overhead_s_a_job(rounds: Sequence[Played]) -> float:
    """Return what of the makespan is not steps: one gang is at work at a time."""
    return makespan_s(rounds) / job_count_of(rounds) - steps_s_a_job(rounds)


def processor_s_a_job(rounds: Sequence[Played]) -> float:
    return sum(one.processor_s for one in rounds) / job_count_of(rounds)


def idle_ratio(rounds: Sequence[Played]) -> float:
    """Return the share of the slots' time in which no step is made; a gang has all slots."""
    return 1 - steps_s_a_job(rounds) * job_count_of(rounds) / makespan_s(rounds)


def ratio(ours: Sequence[Played], theirs: Sequence[Played]) -> float:
    """Return the median of the rounds' ratios: of one round all see nearly the same machine."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(own.makespan_s / other.makespan_s for own, other in pairs)
