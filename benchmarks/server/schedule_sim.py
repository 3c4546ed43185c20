"""Simulates the scheduler on long queues, to measure its makespan and fairness.

Traces of 1,000 jobs of seven sweeps (`traces.py`) are played through the pure decision itself:
at every arrival and every end it is asked whom to start, as the scheduler would ask it. Nothing
else is simulated, so this is about waiting for each other, and not about starting.

**Makespan** against the bound that no scheduler can beat: all work spread over all agents, or the
longest job alone; the worst of the seeds. Where lengths are known, limit 1.05. Also where they are
off by up to 3 and up to 10 times, a whole cell alike, and where nothing is known of them, until a
job of the cell has ended, after which it is known, as the farm does it; and where sweeps arrive one
after another within the first half.

**Fairness**: from the start until the first sweep has no job left to start, each sweep's agent time
beside its equal part; and the longest time for which a sweep had jobs waiting and none at work,
beside the longest job.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from benchmarks.server.traces import TracedJob, guesses_s, lower_bound_s, make_trace
from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.scheduling import place

JOB_COUNT, SEEDS = 1000, (1, 2, 3)
AGENT_COUNTS = (16, 64, 1000)
QUICK_JOB_COUNT, QUICK_AGENT_COUNTS = 60, (16,)
RESERVE_AFTER_S = 60.0
LIMIT_RATIO = 1.05
_AT_ONCE_S = 1e-9  # ends that rounding tells apart


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob:
    """A job of the trace with when it began and on which agents."""

    job: TracedJob
    agent_ids: tuple[str, ...]
    begun_s: float

    @property
    def ended_s(self) -> float:
        return self.begun_s + self.job.length_s


class Simulation:
    """A farm of equal agents, each on a machine of its own, in simulated time."""

    def __init__(
        self, agent_count: int, expected_s: Mapping[int, float], *, learns: bool = False
    ) -> None:
        """With `learns` a job is expected to take what others of its cell took, once any has."""
        self.now_s = 0.0
        self.started: list[StartedJob] = []
        self._expected_s = expected_s
        self._agents = {f"agent-{i:04d}": _agent(i) for i in range(agent_count)}
        self._waiting: dict[int, TracedJob] = {}
        self._ends: list[tuple[float, int]] = []
        self._at_work: dict[int, StartedJob] = {}
        self._last_start_s: dict[int, float] = {}
        self._learns = learns
        self._took_s: dict[int, list[float]] = defaultdict(list)  # by cell

    def play(self, jobs: Sequence[TracedJob]) -> None:
        """Go from event to event until every job has run."""
        coming = sorted(jobs, key=lambda job: (job.arrives_s, job.job_id), reverse=True)
        while coming or self._ends:
            self.now_s = min(
                coming[-1].arrives_s if coming else math.inf,
                self._ends[0][0] if self._ends else math.inf,
            )
            while coming and coming[-1].arrives_s <= self.now_s:
                job = coming.pop()
                self._waiting[job.job_id] = job
            while self._ends and self._ends[0][0] <= self.now_s + _AT_ONCE_S:
                _, job_id = heapq.heappop(self._ends)
                done = self._at_work.pop(job_id)
                self._took_s[done.job.cell].append(done.job.length_s)
                self._set_idle(done.agent_ids, is_idle=True)
            self._decide()
        assert not self._waiting, "the scheduler left jobs behind"

    def _expected(self, job: TracedJob) -> float | None:
        if self._learns and (took_s := self._took_s.get(job.cell)):
            return math.fsum(took_s) / len(took_s)
        return self._expected_s.get(job.job_id)

    def _decide(self) -> None:
        jobs = [
            WaitingJob(
                job_id=job.job_id,
                sweep_id=job.sweep_id,
                agent_count=job.agent_count,
                waited_s=self.now_s - job.arrives_s,
                expected_s=self._expected(job),
            )
            for job in self._waiting.values()
        ]
        gangs = [
            GangAtWork(
                sweep_id=one.job.sweep_id,
                agent_ids=one.agent_ids,
                age_s=self.now_s - one.begun_s,
                expected_s=self._expected(one.job),
            )
            for one in self._at_work.values()
        ]
        since_s = {i: self.now_s - at_s for i, at_s in self._last_start_s.items()}
        for placement in place(
            jobs,
            list(self._agents.values()),
            reserve_after_s=RESERVE_AFTER_S,
            gangs=gangs,
            since_start_s=since_s,
        ):
            job = self._waiting.pop(placement.job_id)
            one = StartedJob(job=job, agent_ids=placement.agent_ids, begun_s=self.now_s)
            self.started.append(one)
            self._at_work[job.job_id] = one
            self._last_start_s[job.sweep_id] = self.now_s
            self._set_idle(one.agent_ids, is_idle=False)
            heapq.heappush(self._ends, (one.ended_s, job.job_id))

    def _set_idle(self, agent_ids: Sequence[str], *, is_idle: bool) -> None:
        for agent_id in agent_ids:
            self._agents[agent_id] = dataclasses.replace(
                self._agents[agent_id], is_idle=is_idle, is_occupying=not is_idle
            )


def _agent(number: int) -> LiveAgent:
    return LiveAgent(
        agent_id=f"agent-{number:04d}",
        machine_id=f"machine-{number:04d}",
        cpus=frozenset({0}),
        is_idle=True,
        is_occupying=False,
    )


def simulate(
    jobs: Sequence[TracedJob],
    *,
    agent_count: int,
    expected_s: Mapping[int, float],
    learns: bool = False,
) -> list[StartedJob]:
    """Play a trace; return every job with its start."""
    simulation = Simulation(agent_count, expected_s, learns=learns)
    simulation.play(jobs)
    return simulation.started


def makespan_s(started: Sequence[StartedJob]) -> float:
    return max(one.ended_s for one in started)


def share_ratios(started: Sequence[StartedJob]) -> list[float]:
    """Return each sweep's agent time beside an equal part, while all of them have jobs to start."""
    last_start_s: dict[int, float] = defaultdict(float)
    for one in started:
        last_start_s[one.job.sweep_id] = max(last_start_s[one.job.sweep_id], one.begun_s)
    until_s = min(last_start_s.values())
    used_s: dict[int, float] = dict.fromkeys(last_start_s, 0.0)
    for one in started:
        overlap_s = max(0.0, min(one.ended_s, until_s) - one.begun_s)
        used_s[one.job.sweep_id] += one.job.agent_count * overlap_s
    equal_s = sum(used_s.values()) / len(used_s)
    return sorted(value / equal_s for value in used_s.values()) if equal_s else []


def longest_drought_s(started: Sequence[StartedJob]) -> float:
    """Return the longest time for which a sweep had jobs waiting and none at work."""
    longest_s = 0.0
    by_sweep: dict[int, list[StartedJob]] = defaultdict(list)
    for one in started:
        by_sweep[one.job.sweep_id].append(one)
    for own in by_sweep.values():
        busy_until_s = own[0].job.arrives_s
        for one in sorted(own, key=lambda one: one.begun_s):
            longest_s = max(longest_s, one.begun_s - busy_until_s)
            busy_until_s = max(busy_until_s, one.ended_s)
    return longest_s


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=at_least(8), nargs="+", help="sizes of the farm")


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Play every trace with every kind of knowledge, on farms of several sizes."""
    job_count = QUICK_JOB_COUNT if given.quick else JOB_COUNT
    figures = []
    for agent_count in given.agents or (QUICK_AGENT_COUNTS if given.quick else AGENT_COUNTS):
        figures += _figures(agent_count, job_count=job_count)
    return figures


def _exact(jobs: list[TracedJob]) -> Mapping[int, float]:
    return {job.job_id: job.length_s for job in jobs}


KNOWLEDGE: dict[str, Callable[[list[TracedJob]], Mapping[int, float]]] = {
    "lengths known": _exact,
    "lengths off by up to 3 times": lambda jobs: guesses_s(jobs, off_by=3.0, seed=9),
    "lengths off by up to 10 times": lambda jobs: guesses_s(jobs, off_by=10.0, seed=9),
    "lengths not known": lambda jobs: {},
}


def _figures(agent_count: int, *, job_count: int) -> list[BenchmarkFigure]:
    traces = {seed: make_trace(job_count, seed=seed) for seed in SEEDS}
    figures = []
    for name, knowledge in KNOWLEDGE.items():
        is_limited = knowledge is _exact
        played = [
            (
                jobs,
                simulate(
                    jobs,
                    agent_count=agent_count,
                    expected_s=knowledge(jobs),
                    learns=not is_limited,
                ),
            )
            for jobs in traces.values()
        ]
        say(f"{agent_count} agents, {name}")
        figures.append(_makespan(name, agent_count, played, is_limited=is_limited))
        if is_limited:
            figures.append(_fairness(agent_count, played))
    arriving = []
    for seed, jobs in traces.items():
        within_s = lower_bound_s(jobs, agent_count=agent_count) / 2
        later = make_trace(job_count, seed=seed, arrivals_within_s=within_s)
        arriving.append((later, simulate(later, agent_count=agent_count, expected_s=_exact(later))))
    figures.append(_makespan("sweeps that arrive", agent_count, arriving, is_limited=False))
    return figures


def _makespan(
    name: str,
    agent_count: int,
    played: Sequence[tuple[list[TracedJob], list[StartedJob]]],
    *,
    is_limited: bool,
) -> BenchmarkFigure:
    pairs = [
        (makespan_s(started), lower_bound_s(jobs, agent_count=agent_count))
        for jobs, started in played
    ]
    ratios = [ours_s / bound_s for ours_s, bound_s in pairs]
    ours_s, bound_s = pairs[ratios.index(max(ratios))]
    return BenchmarkFigure(
        name=f"{agent_count} agents, {name}: makespan",
        unit="s",
        ours=ours_s,
        baseline=bound_s,
        against="lower bound, simulated time",
        limit=f"ratio at most {LIMIT_RATIO:g}" if is_limited else "",
        reached=max(ratios) <= LIMIT_RATIO if is_limited else None,
        note="seeds: " + ", ".join(f"{ratio:.3f}" for ratio in ratios),
    )


def _fairness(
    agent_count: int, played: Sequence[tuple[list[TracedJob], list[StartedJob]]]
) -> BenchmarkFigure:
    """Compare the longest drought of a sweep with the longest job."""
    droughts_s = [longest_drought_s(started) for _, started in played]
    longest_s = [max(job.length_s for job in jobs) for jobs, _ in played]
    shares = [share_ratios(started) for _, started in played]
    worst = max(range(len(played)), key=lambda i: droughts_s[i] / longest_s[i])
    return BenchmarkFigure(
        name=f"{agent_count} agents: a sweep with nothing at work, longest",
        unit="s",
        ours=droughts_s[worst],
        baseline=longest_s[worst],
        against="longest job, simulated time",
        note="agent time beside an equal part, by sweep: "
        + "; ".join(" ".join(f"{ratio:.2f}" for ratio in ratios) for ratios in shares),
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
