"""Previews a sweep: its jobs, impossible ones, and those that no live agent can serve. Pure.

A sweep may have 100,000 jobs, so the size of a stored preview does not depend on their number.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from farm.configuration.axes import spec_values
from farm.configuration.expansion import Impossible
from farm.configuration.spec import JobSpec
from farm.configuration.words import setup_words
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.agent_index import AgentIndex
from farm.placement.agent_pool import AgentPool
from farm.placement.scheduling import explain
from farm.submission import SubmissionPlan

_JOBS_SHOWN = 10
_REASONS_SHOWN = 20
_CELLS_SHOWN = 5
_MOST_NEEDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCells:
    """Cells that cannot run for the same reason, and the first of them."""

    reason: str
    cell_count: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a job asks of the agents that serve it."""

    agent_count: int
    requires: frozenset[str]
    labels: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A sweep in short. `left_out`: the first reasons, the most frequent first; see their counts.

    `target_ratio`: how precise its cells are to be, None where repetitions are counted.
    `needs`: the most frequent ones, each with the number of its jobs.
    """

    name: str
    job_count: int
    max_job_count: int
    cell_count: int
    duplicate_count: int
    target_ratio: float | None
    priority: int
    budget_machine_s: float | None
    left_out_count: int
    left_out: tuple[SkippedCells, ...]
    left_out_reason_count: int
    needs: tuple[tuple[Need, int], ...]
    jobs: tuple[JobSpec, ...]

    @property
    def has_setups(self) -> bool:
        """Whether any of the jobs that are shown is set up in a way that has to be said."""
        return any(setup_words(spec_values(job)) for job in self.jobs)

    @property
    def has_networks(self) -> bool:
        """Whether any of the jobs that are shown has a network of its own."""
        return any(job.network is not None for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedJobs:
    """Jobs that the live agents could not serve even if all of them were idle."""

    reason: str
    job_count: int


def summarise(planned: SubmissionPlan) -> Summary:
    """Return a planned sweep in short."""
    expansion, sweep = planned.expansion, planned.sweep
    left_out = _left_out(expansion.impossible)
    return Summary(
        name=sweep.name,
        job_count=len(expansion.jobs),
        max_job_count=expansion.max_job_count,
        cell_count=sum(1 for job in expansion.jobs if job.repetition == 0),
        duplicate_count=expansion.duplicate_count,
        target_ratio=None if sweep.precision is None else sweep.precision.target_ratio,
        priority=sweep.priority,
        budget_machine_s=sweep.budget_machine_s,
        left_out_count=len(expansion.impossible),
        left_out=tuple(left_out[:_REASONS_SHOWN]),
        left_out_reason_count=len(left_out),
        needs=tuple(_needs(expansion.jobs).most_common(_MOST_NEEDS)),
        jobs=expansion.jobs[:_JOBS_SHOWN],
    )


def unserved(summary: Summary, agents: Collection[LiveAgent]) -> list[UnservedJobs]:
    """Return the jobs that have to wait for other agents than these, by reason."""
    resting = _at_rest(agents)
    pool = AgentPool(resting)
    waiting = [
        (
            WaitingJob(
                job_id=number,
                agent_count=need.agent_count,
                requires=need.requires,
                labels=need.labels,
            ),
            count,
        )
        for number, (need, count) in enumerate(summary.needs)
    ]
    too_much = [(job, count) for job, count in waiting if pool.find_gang(job) is None]
    # None of them finds a gang, so none is in another's way.
    explained = explain([job for job, _ in too_much], resting, reserve_after_s=math.inf)
    reasons: Counter[str] = Counter()
    for job, count in too_much:
        reasons[explained[job.job_id]] += count
    return [UnservedJobs(reason=reason, job_count=count) for reason, count in reasons.most_common()]


def widest_gang(agents: Collection[LiveAgent]) -> int:
    """Return how many ranks of one gang these agents could serve if all of them were idle."""
    return AgentIndex(_at_rest(agents)).capacity((frozenset(), frozenset(), frozenset()))


def _left_out(impossible: Sequence[Impossible]) -> list[SkippedCells]:
    by_reason: dict[str, list[str]] = {}
    for cell in impossible:
        by_reason.setdefault(cell.reason, []).append(cell.cell)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return [
        SkippedCells(reason=reason, cell_count=len(cells), cells=tuple(cells[:_CELLS_SHOWN]))
        for reason, cells in ordered
    ]


def _needs(jobs: Sequence[JobSpec]) -> Counter[Need]:
    # Jobs of a case share their labels, and those of a cell their network: so most are known by
    # where these are, which takes a tenth of the time of looking at what they say.
    alike: dict[tuple[str, str, int, int, str | None, str | None, int], list[JobSpec]] = {}
    for job in jobs:
        where = (id(job.network), job.emulator, job.interface, id(job.labels))
        key = (job.model, job.strategy, job.agent_count, *where)
        alike.setdefault(key, []).append(job)
    needs: Counter[Need] = Counter()
    for first, *others in alike.values():
        need = Need(
            agent_count=first.agent_count,
            requires=first.required_capabilities,
            labels=frozenset(first.labels.items()),
        )
        needs[need] += 1 + len(others)
    return needs


def _at_rest(agents: Iterable[LiveAgent]) -> list[LiveAgent]:
    """Return the agents as they are once their work is done; drained ones still take nothing."""
    return [
        dataclasses.replace(agent, is_idle=True, is_occupying=False)
        if agent.is_occupying
        else agent
        for agent in agents
    ]
