"""Chooses the waiting jobs that get a gang now, with reasons why the others wait.

Pure: no clock, no I/O, no logging. Every job is considered once, in the order of `FairShareOrder`.
The caller passes estimates of how long jobs take.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from farm.configuration.catalogue import TORCH
from farm.configuration.spec import GPUS_CAPABILITY, RANKS_CAPABILITY, TORCH_COMPILE, TORCH_VERSION
from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.agent_index import (
    AgentIndex,
    JobKind,
    Requirement,
    kind_of,
    needs_tensorflow,
    requirement_of,
    satisfies,
)
from farm.placement.agent_pool import AgentPool, AvailabilityForecast
from farm.placement.fair_share import FairShareOrder
from farm.text.plurals import counted

# Capabilities, labels, how many agents, and by which sweep and priority, if by one that is due.
_Question: TypeAlias = tuple[
    frozenset[str], frozenset[tuple[str, str]], int, tuple[int, int] | None
]


@dataclass(frozen=True, slots=True)
class Placement:
    job_id: int
    agent_ids: tuple[str, ...]  # position is the rank; length is the world size


def place(
    jobs: Collection[WaitingJob],
    agents: Collection[LiveAgent],
    *,
    reserve_after_s: float,
    gangs: Collection[GangAtWork] = (),
    since_start_s: Mapping[int, float] | None = None,
    waited_more_s: float = 0.0,
) -> list[Placement]:
    """Give whole gangs to waiting jobs, in the order of their `FairShareOrder`.

    `waited_more_s`: for how much longer all of them have waited than they say.

    Agents that work at the same time never share a core of a machine, and those of a gang have
    the same version of the framework. Among agents that suit a job equally well, those that have
    measured its cell least are taken, so that repetitions are spread over machines.

    A job that does not fit yet is passed over, so jobs behind it still run (backfill). Where the
    ends of the `gangs` at work can be told, the agents that it will get first are reserved for it:
    only jobs that are expected to have done with them by then may have them. Expectations may be
    wrong, so they are not relied on for ever (`_is_overdue`): then the idle agents it could use
    are held for it, or others would starve it. A job that the farm could not serve even if all
    its agents were idle holds nothing: it can wait for more agents without stopping everyone else.

    Where cores overlap, agents that block fewest others go first. That is greedy: an unusual
    overlap may leave a gang unplaced that a search would have found.
    """
    pool = AgentPool(agents, AvailabilityForecast(gangs))
    placements: list[Placement] = []
    # Nothing idle is the usual case of a busy farm, and need not cost a sort of every job.
    if not pool.free_count:
        return placements
    refusals = UnplaceableRequests(pool)
    turns = FairShareOrder(
        jobs,
        gangs,
        agent_count=pool.index.serving_count,
        since_start_s=since_start_s,
        waited_more_s=waited_more_s,
    )
    for job in turns:
        is_due = job.waited_s + waited_more_s >= reserve_after_s
        if refusals.is_again(job, is_due=is_due):
            continue
        refused_at = pool.change_count
        gang = pool.find_gang(job)
        if gang is None:
            _keep_agents(job, pool, turns, reserve_after_s=reserve_after_s)
            refusals.note(job, is_due=is_due, at=refused_at)
        else:
            pool.take(gang, expected_s=job.expected_s)
            turns.started(job)
            placements.append(Placement(job.job_id, tuple(agent.agent_id for agent in gang)))
        if not pool.free_count:
            break
    return placements


def _keep_agents(
    job: WaitingJob, pool: AgentPool, turns: FairShareOrder, *, reserve_after_s: float
) -> None:
    """Keep agents for a job that does not fit yet, from those after it."""
    is_due = turns.waited_s(job) >= reserve_after_s
    is_overdue = is_due and _is_overdue(job, pool, turns, reserve_after_s=reserve_after_s)
    if not is_overdue and (pool.is_awaited(job) or not pool.has_any(job)):
        return
    reservation = None if is_overdue else pool.reservation(job)
    if reservation is not None:
        pool.reserve(job, reservation)
    elif is_due:
        pool.hold(job)


def _is_overdue(
    job: WaitingJob, pool: AgentPool, turns: FairShareOrder, *, reserve_after_s: float
) -> bool:
    """Whether expectations have kept the job's sweep from starting anything for too long.

    Were they right, the first in line would have its gang as soon as the longest that was at work
    has ended, and those before it in line are of sweeps that have waited longer. Twice as long as
    that is enough.
    """
    longest_s = pool.forecast.longest_s
    if longest_s is None:
        return True
    if turns.is_at_work(job):
        return False
    patience_s = reserve_after_s + 2 * turns.older_count(job) * longest_s
    return turns.unserved_s(job) >= patience_s


def explain(
    jobs: Collection[WaitingJob],
    agents: Collection[LiveAgent],
    *,
    reserve_after_s: float,
    gangs: Collection[GangAtWork] = (),
) -> dict[int, str]:
    """Return for each job that `place` would leave waiting why it waits.

    What the farm could not serve at all has no turn, so that it does not put off the others.
    """
    pool = AgentPool(agents, AvailabilityForecast(gangs))
    unschedulable = UnschedulableReasons(agents)
    reasons = {
        job.job_id: reason for job in jobs if (reason := unschedulable.of(kind_of(job))) is not None
    }
    turns = FairShareOrder(
        [job for job in jobs if job.job_id not in reasons],
        gangs,
        agent_count=pool.index.serving_count,
    )
    known: dict[tuple[Requirement, frozenset[str], int, int], str] = {}
    for job in turns:
        gang = pool.find_gang(job)
        if gang is not None:
            pool.take(gang, expected_s=job.expected_s)
            turns.started(job)
            continue
        # Jobs that ask for the same while nothing changes wait for the same.
        question = (requirement_of(job), job.avoid, job.agent_count, pool.change_count)
        if question not in known:
            known[question] = _reason(job, pool)
        reasons[job.job_id] = known[question]
        _keep_agents(job, pool, turns, reserve_after_s=reserve_after_s)
    return reasons


class UnschedulableReasons:
    """Why these agents could not serve jobs of some kinds if all of them were idle.

    Make one for each decision: it keeps what it has found.
    """

    def __init__(self, agents: Collection[LiveAgent]) -> None:
        self._pool = AgentPool(agents)
        self._reasons: dict[JobKind, str | None] = {}

    def of(self, kind: JobKind) -> str | None:
        """Return why jobs of the kind could not be served; None: they could."""
        if kind not in self._reasons:
            requires, labels, agent_count = kind
            job = WaitingJob(job_id=0, agent_count=agent_count, requires=requires, labels=labels)
            self._reasons[kind] = _unschedulable_reason(job, self._pool)
        return self._reasons[kind]


def unschedulable_kinds(
    kinds: Iterable[JobKind], agents: Collection[LiveAgent]
) -> dict[JobKind, str]:
    """Return the kinds of job that these agents can never serve, each with the reason."""
    reasons = UnschedulableReasons(agents)
    return {kind: reason for kind in kinds if (reason := reasons.of(kind)) is not None}


def _unschedulable_reason(job: WaitingJob, pool: AgentPool) -> str | None:
    able = pool.index.able(requirement_of(job))
    if not able:
        return _nobody_suits(job, pool.index)
    if any(
        pool.index.capacity(requirement) >= job.agent_count
        for requirement in pool.index.requirements(job)
    ):
        return None
    return _too_narrow(job, pool, able)


def _reason(job: WaitingJob, pool: AgentPool) -> str:
    """Say why `find_gang` has none for a schedulable job, as the pool is now."""
    able = pool.index.able(requirement_of(job))
    needed = job.agent_count
    requirements = [
        requirement
        for requirement in pool.index.requirements(job)
        if pool.index.capacity(requirement) >= needed
    ]
    taken = pool.taken
    ready = [a for a in able if a.is_idle and not a.is_occupying and a.agent_id not in taken]
    at_hand = [
        [agent for agent in ready if satisfies(agent, requirement)] if requirement[2] else ready
        for requirement in requirements
    ]
    idle = max(at_hand, key=len)
    usable = [a for a in idle if pool.is_unblocked(a)]
    limit = pool.index.ranks_on_a_core(job, requirements[at_hand.index(idle)])
    usable_count = sum(1 for _ in pool.index.disjoint(usable, limit))
    held = [a.agent_id for a in usable if a.agent_id in pool.holders]
    if pool.agents_not_avoided(job) and usable_count >= needed:
        return f"waits for others than {', '.join(sorted(job.avoid))}, where it failed before"
    if held and usable_count >= needed:
        return _kept_for(held[0], pool)
    if len(idle) >= needed:
        return (
            "cores or GPUs of its idle agents are taken by other agents of the same machine "
            f"({usable_count} of {needed} can be used)"
        )
    of_version = _of_version(requirements[at_hand.index(idle)])
    return f"waits for {counted(needed - len(idle), 'more idle agent')}{of_version}" + (
        f" ({len(idle)} of {needed})"
    )


def _kept_for(agent_id: str, pool: AgentPool) -> str:
    holder = pool.holders[agent_id]
    at_s = pool.reserved_until_s.get(agent_id)
    until = "" if at_s is None else f" and is expected to start in {at_s:.0f} s"
    return (
        f"idle agents are reserved for job {holder.job_id}, "
        f"which has waited {holder.waited_s:.0f} s{until}"
    )


def _too_narrow(job: WaitingJob, pool: AgentPool, able: Collection[LiveAgent]) -> str:
    needed = f"needs {counted(job.agent_count, 'agent')}{_with(job)}"
    capacity = pool.index.capacity(requirement_of(job))
    if capacity < job.agent_count:
        return f"{needed}; the farm has {_shortage(able, capacity)}{_lacking(job, pool)}"
    counts = [
        (pool.index.capacity(requirement), requirement)
        for requirement in pool.index.requirements(job)
    ]
    parts = [f"{count}{_of_version(requirement)}" for count, requirement in counts if count]
    framework = "PyTorch" if TORCH in job.requires else "TensorFlow"
    return f"{needed} of one {framework} version; the farm has {' and '.join(parts)}"


def _of_version(requirement: Requirement) -> str:
    """Say which version the requirement names; nothing where it names none."""
    capabilities, _, versions = requirement
    for capability in capabilities:
        if capability.startswith(TORCH_VERSION):
            return f" with {capability.removeprefix(TORCH_VERSION)}"
    return "".join(f" with {v}" if v else " without TensorFlow" for v in versions)


def _nobody_suits(job: WaitingJob, index: AgentIndex) -> str:
    agents = index.agents
    if not agents:
        return "no agent is alive"
    for capability in sorted(job.requires):
        if index.having(capability):
            continue
        if capability.startswith(RANKS_CAPABILITY):
            count = capability.removeprefix(RANKS_CAPABILITY)
            return f"no agent has {count} cores for {count} ranks, or AGENT_SHARES_CORES=true"
        if capability.startswith(GPUS_CAPABILITY):
            return f"no agent has {counted(int(capability.removeprefix(GPUS_CAPABILITY)), 'GPU')}"
        if capability == TORCH_COMPILE:
            return "no agent with PyTorch has g++ and Python.h, which torch.compile needs"
        return f"no agent has capability '{capability}'"
    if needs_tensorflow(job.requires) and not any(agent.has_tensorflow for agent in agents):
        return "no agent has TensorFlow"
    for name, value in sorted(job.labels):
        if not index.having((name, value)):
            return f"labels {name}={value}: no agent"
    if needs_tensorflow(job.requires) and not all(agent.has_tensorflow for agent in agents):
        return f"no single agent comes with {' and '.join(['TensorFlow', *_wished(job)])}"
    return f"no single agent comes{_with(job)}"


def _lacking(job: WaitingJob, pool: AgentPool) -> str:
    """Say how many agents would serve the job if they had its framework."""
    if not needs_tensorflow(job.requires):
        return ""
    count = sum(
        1
        for agent in pool.index.agents
        if not agent.has_tensorflow
        and job.requires <= agent.capabilities
        and job.labels <= agent.labels
    )
    return f", and {count} more without TensorFlow" if count else ""


def _shortage(able: Collection[LiveAgent], capacity: int) -> str:
    serving_count = sum(1 for agent in able if agent.is_idle or agent.is_occupying)
    if serving_count > capacity:
        return f"{capacity} that share no core and no GPU ({serving_count} in all)"
    if len(able) > serving_count:
        return f"{capacity}, and {len(able) - serving_count} more that take no jobs now"
    return f"{capacity}"


def _wished(job: WaitingJob) -> list[str]:
    return sorted(job.requires) + [f"{name}={value}" for name, value in sorted(job.labels)]


def _with(job: WaitingJob) -> str:
    wished = _wished(job)
    return f" with {' and '.join(wished)}" if wished else ""


class UnplaceableRequests:
    """Requests that could not be placed, so that equal ones of thousands of jobs are skipped.

    While the pool does not change, an equal request has the same result: it neither finds a gang
    nor has agents reserved. A shorter job may still borrow what is reserved.

    Where agents share cores no job is skipped: gangs are searched greedily, and of fewer agents
    that overlap like the links of a chain a larger gang may be found.
    """

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool
        self._is_disjoint = pool.index.is_disjoint
        # By what was asked for: at which change of the pool, and by how brief a job.
        self._refused: dict[_Question, tuple[int, float]] = {}

    def is_again(self, job: WaitingJob, *, is_due: bool) -> bool:
        """Whether the job may be skipped, since an equal request was refused before."""
        if job.avoid or not self._is_disjoint:
            return False
        # Written out, since most of a long queue is passed over here.
        due = (job.sweep_id, job.priority) if is_due else None
        found = self._refused.get((job.requires, job.labels, job.agent_count, due))
        if found is None or found[0] != self._pool.change_count:
            return False
        return job.expected_s is None or job.expected_s >= found[1]

    def note(self, job: WaitingJob, *, is_due: bool, at: int) -> None:
        """Remember what was refused to the job when the pool had changed `at` times."""
        if not job.avoid:
            length_s = math.inf if job.expected_s is None else job.expected_s
            # For whom agents are kept once they are due is a matter of what their sweep was given.
            due = (job.sweep_id, job.priority) if is_due else None
            self._refused[job.requires, job.labels, job.agent_count, due] = at, length_s
