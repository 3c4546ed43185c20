"""Indexes the agents of a farm by their capabilities, cores and GPUs, for one decision.

A class is a group of agents with equal capabilities, labels and framework version. A requirement is
what a job needs of an agent; the agents that satisfy it are computed once for all jobs that have
it. A gang whose agents must have the same version has one requirement for each version.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from farm.configuration.catalogue import TORCH
from farm.configuration.scripts import are_of_script
from farm.configuration.spec import TENSORFLOW, TORCH_VERSION
from farm.gang.snapshots import LiveAgent, WaitingJob

# What is asked of an agent: capabilities, labels, and its version of the framework. None is a
# version as well, namely of those that have none; an empty set leaves the version open.
Requirement: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, str]], frozenset[str | None]]
# What a job asks of its agents, and of how many.
JobKind: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, str]], int]
Ability: TypeAlias = str | tuple[str, str]  # a capability, or a label
_Class: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, str]], str | None, bool]

# The capability of agents whose cores the ranks of one gang may share, as hosts of a lab do.
# Attempts never share cores, whatever their agents say.
SHARES_CORES = "shares_cores"


def requirement_of(job: WaitingJob) -> Requirement:
    """Return the requirement of a job for each of its agents."""
    return job.requires, job.labels, frozenset()


def kind_of(job: WaitingJob) -> JobKind:
    """Return what decides whether a farm could serve a job at all."""
    return job.requires, job.labels, job.agent_count


def needs_tensorflow(capabilities: frozenset[str]) -> bool:
    """Whether jobs that ask for these need the agent's own TensorFlow."""
    return TENSORFLOW in capabilities or not (TORCH in capabilities or are_of_script(capabilities))


def satisfies(agent: LiveAgent, requirement: Requirement) -> bool:
    """Whether the agent satisfies the requirement."""
    capabilities, labels, versions = requirement
    return (
        capabilities <= agent.capabilities
        and (agent.has_tensorflow or not needs_tensorflow(capabilities))
        and labels <= agent.labels
        and (not versions or agent.framework_version in versions)
    )


class AgentIndex:
    """The agents during one decision, and what of them it does not change.

    Agents that are neither idle nor at work (drained, or with a full spool) play no part.
    """

    def __init__(self, agents: Collection[LiveAgent]) -> None:
        self._overlaps = overlapping([a for a in agents if a.is_idle or a.is_occupying])
        # Agents that block fewest others first; then plain ones, to spare those with a GPU.
        self.agents = sorted(agents, key=lambda a: (*self.likeness(a), a.agent_id))
        self.by_id = {agent.agent_id: agent for agent in self.agents}
        self.order = {agent.agent_id: i for i, agent in enumerate(self.agents)}
        # By capability, and by label: who has it, in order.
        self._having: dict[Ability, list[LiveAgent]] = {}
        for agent in self.agents:
            for one in _abilities(agent.capabilities, agent.labels):
                self._having.setdefault(one, []).append(agent)
        self._serving: dict[_Class, list[LiveAgent]] = {}
        for agent in self.agents:
            if agent.is_idle or agent.is_occupying:
                kind = (
                    agent.capabilities,
                    agent.labels,
                    agent.framework_version,
                    agent.has_tensorflow,
                )
                self._serving.setdefault(kind, []).append(agent)
        # The newest first, as far as their texts tell.
        self._versions = sorted(
            {kind[2] for kind in self._serving}, key=lambda v: v or "", reverse=True
        )
        able = {capability for kind in self._serving for capability in kind[0]}
        torch_versions = (one for one in able if one.startswith(TORCH_VERSION))
        self._torch_versions = sorted(torch_versions, reverse=True)
        self._requirements: dict[Requirement, tuple[Requirement, ...]] = {}
        self._capacity: dict[Requirement, int] = {}
        self._can_share = any(SHARES_CORES in agent.capabilities for agent in agents)
        self._own_cores: dict[Requirement, int] = {}

    @property
    def serving_count(self) -> int:
        """Return how many agents are idle or at work."""
        return sum(len(agents) for agents in self._serving.values())

    @property
    def is_disjoint(self) -> bool:
        """Whether no two of the agents that serve share a core or a GPU."""
        return not self._overlaps

    def overlaps(self, agent: LiveAgent) -> Collection[LiveAgent]:
        """Return the agents that share a core or a GPU with this one."""
        return self._overlaps.get(agent.agent_id, {}).values()

    def requirements(self, job: WaitingJob) -> tuple[Requirement, ...]:
        """Return the alternative requirements for a gang, the version of most agents first.

        Ranks of different versions would be refused before *go*, so that they are not put together.
        """
        requirement = requirement_of(job)
        if job.agent_count == 1:
            return (requirement,)
        if requirement not in self._requirements:
            of_one = self._of_one_version(requirement)
            most_first = tuple(sorted(of_one, key=self.capacity, reverse=True))
            self._requirements[requirement] = most_first if len(of_one) > 1 else (requirement,)
        return self._requirements[requirement]

    def _of_one_version(self, requirement: Requirement) -> list[Requirement]:
        """Return the requirement for each version of its framework; PyTorch's are capabilities."""
        capabilities, labels, _ = requirement
        if TORCH in capabilities:
            return [(capabilities | {v}, labels, frozenset()) for v in self._torch_versions]
        if not needs_tensorflow(capabilities):
            return [requirement]
        return [(capabilities, labels, frozenset({v})) for v in self._versions]

    def capacity(self, requirement: Requirement) -> int:
        """Return how many ranks of one gang the farm could serve if all its agents were idle."""
        if requirement not in self._capacity:
            self._capacity[requirement] = sum(
                1 for _ in self.disjoint(self.serving_for(requirement))
            )
        return self._capacity[requirement]

    def ranks_on_a_core(self, job: WaitingJob, requirement: Requirement) -> int:
        """Return how many ranks of the job's gang may share a core: as few as it takes.

        That is what it would be if all agents were idle. So a gang for which there are cores
        enough waits for them, and its step time does not depend on who else is at work.
        """
        if not self._can_share:
            return 1
        if requirement not in self._own_cores:
            self._own_cores[requirement] = sum(
                1 for _ in self.disjoint(self.serving_for(requirement), 1)
            )
        return -(-job.agent_count // max(1, self._own_cores[requirement]))

    def disjoint(
        self, agents: Iterable[LiveAgent], ranks_on_a_core: int | None = None
    ) -> Iterator[LiveAgent]:
        """Yield the agents that share no GPU with one before, and no core unless both may.

        `ranks_on_a_core`: how many of those that may share one, if not any number.
        """
        blocked: set[str] = set()
        sharing: Counter[str] = Counter()
        for agent in agents:
            if agent.agent_id not in blocked:
                yield agent
                for other in self.overlaps(agent):
                    sharing[other.agent_id] += 1
                    if not _may_share(agent, other) or (sharing[other.agent_id] == ranks_on_a_core):
                        blocked.add(other.agent_id)

    def likeness(self, agent: LiveAgent) -> tuple[int, int]:
        """Agents that block equally many others and can do equally much are alike."""
        return len(self.overlaps(agent)), len(agent.capabilities)

    def having(self, one: Ability) -> Sequence[LiveAgent]:
        """Return those that have a capability or a label, in order, drained ones too."""
        return self._having.get(one, ())

    def able(self, requirement: Requirement) -> list[LiveAgent]:
        """Return the agents that satisfy the requirement, in order, including drained ones.

        Only those are asked that have the rarest of what is required: of thousands of label sets
        most agents have none.
        """
        capabilities, labels, _ = requirement
        having = map(self.having, _abilities(capabilities, labels))
        few = min(having, key=len, default=self.agents)
        return [agent for agent in few if satisfies(agent, requirement)]

    def serving_for(self, requirement: Requirement) -> list[LiveAgent]:
        """Return the idle and busy agents that satisfy the requirement, in order."""
        return [agent for agent in self.able(requirement) if agent.is_idle or agent.is_occupying]


def _may_share(one: LiveAgent, other: LiveAgent) -> bool:
    """Whether ranks of one gang may be on both agents, which share cores or GPUs."""
    both = one.capabilities & other.capabilities
    return SHARES_CORES in both and one.gpus.isdisjoint(other.gpus)


def _abilities(capabilities: Iterable[str], labels: Iterable[tuple[str, str]]) -> Iterator[Ability]:
    yield from capabilities
    yield from labels


def overlapping(agents: Iterable[LiveAgent]) -> dict[str, dict[str, LiveAgent]]:
    """Map each agent that shares a core or a GPU with others to those others."""
    machines: dict[str, list[LiveAgent]] = {}
    for agent in agents:
        machines.setdefault(agent.machine_id, []).append(agent)
    overlaps: dict[str, dict[str, LiveAgent]] = {}
    for neighbours in machines.values():
        if len(neighbours) == 1:
            continue
        users: dict[object, list[LiveAgent]] = {}
        for agent in neighbours:
            for part in (*agent.cpus, *agent.gpus):
                users.setdefault(part, []).append(agent)
        for sharing in users.values():
            for one, other in itertools.permutations(sharing, 2):
                overlaps.setdefault(one.agent_id, {})[other.agent_id] = other
    return overlaps
