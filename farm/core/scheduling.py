"""Choose which waiting jobs get a gang now, and say why the others wait.

Pure: no clock, no I/O, no logging. Every job is looked at once, in order of precedence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from farm.core.agent_pool import AgentPool, Wish, suits, wish_of
from farm.core.spec import TORCH, TORCH_VERSION
from farm.core.views import LiveAgent, WaitingJob


@dataclass(frozen=True, slots=True)
class Placement:
    job_id: int
    agent_ids: tuple[str, ...]  # position is the rank; length is the world size


def place(
    jobs: Collection[WaitingJob], agents: Collection[LiveAgent], *, reserve_after_s: float
) -> list[Placement]:
    """Give whole gangs to waiting jobs: higher priority first, then longer wait, then lower id.

    Agents that work at the same time never share a core of a machine, and those of a gang have
    the same version of the framework. Among agents that suit a job equally well, those that have
    measured its cell least are taken, so that repetitions are spread over machines.

    A job that does not fit yet is passed over, so narrow jobs behind it still run (backfill). Once
    it has waited `reserve_after_s`, the idle agents it could use are held for it, or narrow jobs
    would starve it for ever. A job that the farm could not serve even if all its agents were idle
    holds nothing: it can wait for more agents without stopping everyone else.

    Where cores overlap, agents that block fewest others go first. That is greedy: an unusual
    overlap may leave a gang unplaced that a search would have found.
    """
    pool = AgentPool(agents)
    placements = []
    # Nothing idle is the usual case of a busy farm, and need not cost a sort of every job.
    for job in sorted(jobs, key=_precedence) if pool.free_count else ():
        gang = pool.find_gang(job)
        if gang is None:
            pool.hold_if_overdue(job, reserve_after_s=reserve_after_s)
        else:
            pool.take(gang)
            placements.append(Placement(job.job_id, tuple(agent.agent_id for agent in gang)))
        if not pool.free_count:
            break
    return placements


def explain(
    jobs: Collection[WaitingJob], agents: Collection[LiveAgent], *, reserve_after_s: float
) -> dict[int, str]:
    """Say for each job that `place` would leave waiting why it waits."""
    pool = AgentPool(agents)
    reasons: dict[int, str] = {}
    known: dict[tuple[Wish, frozenset[str], int, int], str] = {}
    for job in sorted(jobs, key=_precedence):
        gang = pool.find_gang(job)
        if gang is not None:
            pool.take(gang)
            continue
        # Jobs that ask for the same while nothing changes wait for the same.
        question = (wish_of(job), job.avoid, job.rank_count, pool.change_count)
        if question not in known:
            known[question] = _reason(job, pool)
        reasons[job.job_id] = known[question]
        pool.hold_if_overdue(job, reserve_after_s=reserve_after_s)
    return reasons


def hopeless(jobs: Collection[WaitingJob], agents: Collection[LiveAgent]) -> dict[int, str]:
    """Say of each job that these agents could not serve if all of them were idle why not."""
    pool = AgentPool(agents)
    reasons: dict[int, str] = {}
    known: dict[tuple[Wish, int], str | None] = {}
    for job in jobs:
        question = (wish_of(job), job.rank_count)
        if question not in known:
            known[question] = _hopelessness(job, pool)
        if (reason := known[question]) is not None:
            reasons[job.job_id] = reason
    return reasons


def _hopelessness(job: WaitingJob, pool: AgentPool) -> str | None:
    able = [agent for agent in pool.agents if suits(agent, wish_of(job))]
    if not able:
        return _nobody_suits(job, pool.agents)
    if any(pool.capacity(wish) >= job.rank_count for wish in pool.wishes(job)):
        return None
    return _too_narrow(job, pool, able)


def _precedence(job: WaitingJob) -> tuple[int, float, int]:
    return -job.priority, -job.waited_s, job.job_id


def _reason(job: WaitingJob, pool: AgentPool) -> str:
    """Say why `find_gang` has none for the job, as the pool is now."""
    able = [agent for agent in pool.agents if suits(agent, wish_of(job))]
    if not able:
        return _nobody_suits(job, pool.agents)
    needed = job.rank_count
    wishes = [wish for wish in pool.wishes(job) if pool.capacity(wish) >= needed]
    if not wishes:
        return _too_narrow(job, pool, able)
    ready = [agent for agent in able if _is_at_hand(agent, pool)]
    at_hand = [
        [agent for agent in ready if suits(agent, wish)] if wish[2] else ready for wish in wishes
    ]
    idle = max(at_hand, key=len)
    usable = [a for a in idle if pool.is_unblocked(a)]
    limit = pool.ranks_on_a_core(job, wishes[at_hand.index(idle)])
    usable_count = sum(1 for _ in pool.disjoint(usable, limit))
    held = [pool.holders[a.agent_id] for a in usable if a.agent_id in pool.holders]
    if pool.others_than_avoided(job) and usable_count >= needed:
        return f"waits for others than {', '.join(sorted(job.avoid))}, where it failed before"
    if held and usable_count >= needed:
        holder = min(held, key=_precedence)
        return (
            f"held agents are kept for job {holder.job_id}, "
            f"which has waited {holder.waited_s:.0f} s"
        )
    if len(idle) >= needed:
        return (
            "the cores of its idle agents are taken by other agents of the same machine "
            f"({usable_count} of {needed} can be used)"
        )
    of_version = _of_version(wishes[at_hand.index(idle)])
    return f"waits for {needed - len(idle)} more idle {_noun(needed - len(idle))}{of_version}" + (
        f" ({len(idle)} of {needed})"
    )


def _is_at_hand(agent: LiveAgent, pool: AgentPool) -> bool:
    return agent.is_idle and not agent.is_occupying and agent.agent_id not in pool.taken


def _too_narrow(job: WaitingJob, pool: AgentPool, able: Collection[LiveAgent]) -> str:
    needed = f"needs {_agents(job.rank_count)}{_with(job)}"
    capacity = pool.capacity(wish_of(job))
    if capacity < job.rank_count:
        return f"{needed}; the farm has {_shortage(able, capacity)}"
    counts = [(pool.capacity(wish), wish) for wish in pool.wishes(job)]
    parts = [f"{count}{_of_version(wish)}" for count, wish in counts if count]
    framework = "PyTorch" if TORCH in job.requires else "TensorFlow"
    return f"{needed} of one {framework} version; the farm has {' and '.join(parts)}"


def _of_version(wish: Wish) -> str:
    """Say which version a wish is for; nothing where it is left open."""
    capabilities, _, versions = wish
    for capability in capabilities:
        if capability.startswith(TORCH_VERSION):
            return f" with {capability.removeprefix(TORCH_VERSION)}"
    return "".join(f" with {v}" if v else " without TensorFlow" for v in versions)


def _nobody_suits(job: WaitingJob, agents: Collection[LiveAgent]) -> str:
    if not agents:
        return "no agent is alive"
    for capability in sorted(job.requires):
        if not any(capability in agent.capabilities for agent in agents):
            return f"no agent has capability '{capability}'"
    for name, value in sorted(job.labels):
        if not any((name, value) in agent.labels for agent in agents):
            return f"labels {name}={value}: no agent"
    return f"no single agent comes{_with(job)}"


def _shortage(able: Collection[LiveAgent], capacity: int) -> str:
    serving_count = sum(1 for agent in able if agent.is_idle or agent.is_occupying)
    if serving_count > capacity:
        return f"{capacity} that share no core ({serving_count} in all)"
    if len(able) > serving_count:
        return f"{capacity}, and {len(able) - serving_count} more that take no jobs now"
    return f"{capacity}"


def _with(job: WaitingJob) -> str:
    wished = sorted(job.requires) + [f"{name}={value}" for name, value in sorted(job.labels)]
    return f" with {' and '.join(wished)}" if wished else ""


def _agents(count: int) -> str:
    return f"{count} {_noun(count)}"


def _noun(count: int) -> str:
    return "agent" if count == 1 else "agents"
