"""Makes up queues for the scheduler's simulator: jobs, and how long each takes.

A trace is several sweeps of unequal size. A sweep is made of cells with some repetitions each: all
first ones, then the second, each round in an order of its own, as `farm.configuration.expansion`
makes them. Widths are 1, 2, 4 and 8. The length of a cell is drawn from Pareto's distribution,
whose mean its longest hundredth makes up to a good part, and its repetitions differ by some per
cent.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

WIDTHS = (1, 2, 4, 8)
_REPETITIONS = 5
_SHORTEST_S, _LONGEST_S = 20.0, 7200.0
_TAIL = 1.3  # Pareto's exponent: at 1 and below there is no mean, at 2 and below no variance
_SPREAD = 0.05  # of repetitions, as the deviation of the logarithm
_SWEEP_SHARES = (0.3, 0.25, 0.15, 0.1, 0.1, 0.05, 0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedJob:
    """A job with what only the simulator knows: when it comes and how long it takes."""

    job_id: int
    sweep_id: int
    cell: int
    agent_count: int
    length_s: float
    arrives_s: float = 0.0


def make_trace(job_count: int, *, seed: int, arrivals_within_s: float = 0.0) -> list[TracedJob]:
    """Return a trace by ascending job id. Sweeps come whole, the first of them at once."""
    rng = random.Random(seed)
    jobs: list[TracedJob] = []
    cell_count = 0
    for sweep_id, share in enumerate(_SWEEP_SHARES, start=1):
        arrives_s = 0.0 if sweep_id == 1 else rng.uniform(0.0, arrivals_within_s)
        end = job_count if sweep_id == len(_SWEEP_SHARES) else len(jobs) + round(share * job_count)
        cells = [
            (
                cell_count + i,
                rng.choice(WIDTHS),
                min(_SHORTEST_S * rng.paretovariate(_TAIL), _LONGEST_S),
            )
            for i in range(1, math.ceil((end - len(jobs)) / _REPETITIONS) + 1)
        ]
        cell_count += len(cells)
        rounds = [rng.sample(cells, len(cells)) for _ in range(_REPETITIONS)]
        for cell, width, cell_s in itertools.chain(*rounds):
            if len(jobs) < end:
                jobs.append(
                    TracedJob(
                        job_id=len(jobs) + 1,
                        sweep_id=sweep_id,
                        cell=cell,
                        agent_count=width,
                        length_s=cell_s * math.exp(rng.gauss(0.0, _SPREAD)),
                        arrives_s=arrives_s,
                    )
                )
    return jobs


def lower_bound_s(jobs: list[TracedJob], *, agent_count: int) -> float:
    """Return before when no scheduler can have done: all work at once, or the longest job alone.

    What comes later cannot begin before: max over arrivals a of a + (work that comes from a on) /
    agents, and max over jobs of arrival + length.
    """
    critical_s = max(job.arrives_s + job.length_s for job in jobs)
    work_s = [
        arrives_s
        + sum(j.agent_count * j.length_s for j in jobs if j.arrives_s >= arrives_s) / agent_count
        for arrives_s in {job.arrives_s for job in jobs}
    ]
    return max(critical_s, *work_s)


def guesses_s(jobs: list[TracedJob], *, off_by: float, seed: int) -> dict[int, float]:
    """Return by job id an expectation that is off by up to this factor, for a whole cell alike."""
    rng = random.Random(seed)
    by_cell: dict[int, float] = {}
    for job in jobs:
        by_cell.setdefault(job.cell, off_by ** rng.uniform(-1.0, 1.0))
    return {job.job_id: job.length_s * by_cell[job.cell] for job in jobs}
