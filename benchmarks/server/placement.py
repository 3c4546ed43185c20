"""Time of one scheduling decision over 10,000 waiting jobs, by the number of agents.

The baseline is the plain version of the same rule, which rescans the agents for each job and knows
neither labels nor priorities, nor lengths and sweeps. The farm is half busy, agents are of four
kinds, and jobs are 1 to 16 ranks wide and of 20 sweeps; one in three wishes a capability, one in
five a label. How long jobs and the gangs at work take is known. Each figure is the median of five
decisions. The last is of a farm at work, whose few idle agents suit none of those who wait: every
job is looked at, and that is how it mostly is.

Limit: 100 ms for 1000 agents.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
import time
from collections.abc import Callable, Collection

from benchmarks.figures import BenchmarkFigure, run_benchmark
from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.scheduling import Placement, explain, place
from farm.text.display import duration, exact_milliseconds

JOB_COUNT = 10_000
SWEEP_COUNT = 20
AGENT_COUNTS = (10, 100, 1000)
RUN_COUNT = 5
RESERVE_AFTER_S = 60.0
QUICK_JOB_COUNT, QUICK_AGENT_COUNTS = 200, (10,)
LIMIT_S = 0.1  # with the most agents


def place_plainly(
    jobs: Collection[WaitingJob], agents: Collection[LiveAgent], *, reserve_after_s: float
) -> list[Placement]:
    """The baseline: the same rule without an index; it knows neither labels nor priorities."""
    idle = {a.agent_id for a in agents if a.is_idle}
    placements = []
    for job in sorted(jobs, key=lambda j: (-j.waited_s, j.job_id)):
        able = sorted(a.agent_id for a in agents if job.requires <= a.capabilities)
        usable = [agent_id for agent_id in able if agent_id in idle]
        if len(usable) >= job.agent_count:
            gang = tuple(usable[: job.agent_count])
            placements.append(Placement(job.job_id, gang))
            idle.difference_update(gang)
        elif job.waited_s >= reserve_after_s and len(able) >= job.agent_count:
            idle.difference_update(usable)
    return placements


def make_busy_farm(agent_count: int) -> list[LiveAgent]:
    """One agent in twenty is idle, and has not what all jobs ask for here."""
    return [
        dataclasses.replace(
            agent,
            is_idle=(is_idle := i % 20 == 0),
            is_occupying=not is_idle,
            capabilities=frozenset() if is_idle else frozenset({"netem"}),
        )
        for i, agent in enumerate(make_farm(agent_count, seed=agent_count))
    ]


def make_farm(agent_count: int, *, seed: int) -> list[LiveAgent]:
    """Two agents a machine, on disjoint cores; about half of them at work."""
    rng = random.Random(seed)
    agents = []
    for i in range(agent_count):
        is_idle = rng.random() < 0.5
        capabilities = {"netem"} if rng.random() < 0.5 else set()
        labels = {("instance_type", rng.choice(("small", "large")))}
        agents.append(
            LiveAgent(
                agent_id=f"agent-{i:04d}",
                machine_id=f"machine-{i // 2:04d}",
                cpus=frozenset(range(8)) if i % 2 == 0 else frozenset(range(8, 16)),
                capabilities=frozenset(capabilities),
                labels=frozenset(labels),
                is_idle=is_idle,
                is_occupying=not is_idle,
            )
        )
    return agents


def make_jobs(job_count: int, *, seed: int) -> list[WaitingJob]:
    """Return waiting jobs of random widths, requirements, priorities and waits, by a seed."""
    rng = random.Random(seed)
    return [
        WaitingJob(
            job_id=i,
            sweep_id=rng.randrange(SWEEP_COUNT),
            agent_count=rng.choice((1, 2, 4, 8, 16)),
            requires=frozenset({"netem"} if rng.random() < 1 / 3 else ()),
            labels=frozenset({("instance_type", "large")} if rng.random() < 1 / 5 else ()),
            priority=rng.choice((0, 0, 0, 1)),
            waited_s=rng.uniform(0, 2 * RESERVE_AFTER_S),
            expected_s=20 * rng.paretovariate(1.3),
        )
        for i in range(job_count)
    ]


def make_gangs(agents: Collection[LiveAgent], *, seed: int) -> list[GangAtWork]:
    """Every agent at work is in a gang of two, but perhaps for the last."""
    rng = random.Random(seed)
    busy = [agent.agent_id for agent in agents if agent.is_occupying]
    return [
        GangAtWork(
            sweep_id=rng.randrange(SWEEP_COUNT),
            agent_ids=tuple(busy[i : i + 2]),
            age_s=rng.uniform(0, 30),
            expected_s=20 * rng.paretovariate(1.3),
        )
        for i in range(0, len(busy), 2)
    ]


def median_s(
    decide: Callable[..., object], jobs: object, agents: object, **options: object
) -> float:
    times_s = []
    for _ in range(RUN_COUNT):
        begun = time.perf_counter()
        decide(jobs, agents, reserve_after_s=RESERVE_AFTER_S, **options)
        times_s.append(time.perf_counter() - begun)
    return statistics.median(times_s)


def figure_of(
    name: str,
    jobs: Collection[WaitingJob],
    agents: Collection[LiveAgent],
    *,
    gangs: Collection[GangAtWork],
    note: str = "",
) -> BenchmarkFigure:
    """Decide, and decide plainly; the largest farm is held to the limit."""
    ours_s = median_s(place, jobs, agents, gangs=gangs)
    is_limited = len(agents) == max(AGENT_COUNTS)
    return BenchmarkFigure(
        name=name,
        unit="s",
        ours=ours_s,
        baseline=median_s(place_plainly, jobs, agents),
        against="rescan for each job",
        limit=f"at most {exact_milliseconds(LIMIT_S)} ms" if is_limited else "",
        reached=ours_s <= LIMIT_S if is_limited else None,
        note=note,
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Decide for farms of several sizes, and for the largest one at work."""
    jobs = make_jobs(QUICK_JOB_COUNT if given.quick else JOB_COUNT, seed=1)
    agent_counts = QUICK_AGENT_COUNTS if given.quick else AGENT_COUNTS
    figures = []
    for agent_count in agent_counts:
        agents = make_farm(agent_count, seed=agent_count)
        gangs = make_gangs(agents, seed=agent_count)
        explained_s = median_s(explain, jobs, agents, gangs=gangs)
        name = f"placing {len(jobs):,} jobs on {agent_count} agents"
        note = f"saying why each job waits {duration(explained_s)}"
        figures.append(figure_of(name, jobs, agents, gangs=gangs, note=note))
    most = max(agent_counts)
    asking = [dataclasses.replace(job, requires=frozenset({"netem"})) for job in jobs]
    agents = make_busy_farm(most)
    name = f"refusing {len(jobs):,} jobs the few idle agents of {most}"
    figures.append(figure_of(name, asking, agents, gangs=make_gangs(agents, seed=most)))
    return figures


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
