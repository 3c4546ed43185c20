"""The agents of a farm during one scheduling decision: what they can do, which cores they use.

Agents are indexed by class, that is by equal capabilities, labels and framework version, and
looked up by wish, that is by what a job asks of an agent; what suits a wish is worked out once for
all jobs that have it. A gang whose agents must have one version has a wish for each version.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from farm.core.shared_cores import overlapping
from farm.core.spec import TORCH, TORCH_VERSION
from farm.core.views import LiveAgent, WaitingJob

# What is asked of an agent: capabilities, labels, and its version of the framework. None is a
# version as well, namely of those that have none; an empty set leaves the version open.
Wish: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, str]], frozenset[str | None]]
_Class: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, str]], str | None]

# The capability of agents whose cores the ranks of one gang may share, as hosts of a lab do.
# Attempts never share cores, whatever their agents say.
SHARES_CORES = "shares_cores"


def wish_of(job: WaitingJob) -> Wish:
    """Return what a job asks of each of its agents, whatever the others of its gang are."""
    return job.requires, job.labels, frozenset()


def suits(agent: LiveAgent, wish: Wish) -> bool:
    """Whether the agent has what the wish asks for."""
    capabilities, labels, versions = wish
    return (
        capabilities <= agent.capabilities
        and labels <= agent.labels
        and (not versions or agent.framework_version in versions)
    )


class AgentPool:
    """The agents during one decision: which are free still, and which are held for whom.

    An agent is free while it is idle, shares no core with one that works, and is neither taken
    nor held in this decision. Agents that are neither idle nor at work (drained, or with a full
    spool) play no part.
    """

    def __init__(self, agents: Collection[LiveAgent]) -> None:
        self.taken: set[str] = set()
        self.holders: dict[str, WaitingJob] = {}
        self.change_count = 0
        self._overlaps = overlapping([a for a in agents if a.is_idle or a.is_occupying])
        # Agents that block fewest others first; then plain ones, to spare those with a GPU.
        self.agents = sorted(
            agents, key=lambda a: (len(self.overlaps(a)), len(a.capabilities), a.agent_id)
        )
        self._order = {agent.agent_id: i for i, agent in enumerate(self.agents)}
        self._serving: dict[_Class, list[LiveAgent]] = {}
        for agent in self.agents:
            if agent.is_idle or agent.is_occupying:
                kind = (agent.capabilities, agent.labels, agent.framework_version)
                self._serving.setdefault(kind, []).append(agent)
        # The newest first, as far as their texts tell.
        self._versions = sorted(
            {kind[2] for kind in self._serving}, key=lambda v: v or "", reverse=True
        )
        able = {capability for kind in self._serving for capability in kind[0]}
        self._torch_versions = sorted(filter(_is_torch_version, able), reverse=True)
        self._wishes: dict[Wish, tuple[Wish, ...]] = {}
        self._free = {a.agent_id for a in self.agents if self.is_unblocked(a)}
        # By wish, in order: who was free when last looked at.
        self._candidates: dict[Wish, dict[str, LiveAgent]] = {}
        self._capacity: dict[Wish, int] = {}
        self._can_share = any(SHARES_CORES in agent.capabilities for agent in agents)
        self._own_cores: dict[Wish, int] = {}
        # Disjoint free agents found for a wish when they last did not suffice. Agents only become
        # fewer during a decision, so wider jobs need not look again.
        self._reach: dict[Wish, int] = {}

    @property
    def free_count(self) -> int:
        return len(self._free)

    def overlaps(self, agent: LiveAgent) -> Collection[LiveAgent]:
        """Return the agents that share a core with this one."""
        return self._overlaps.get(agent.agent_id, {}).values()

    def is_unblocked(self, agent: LiveAgent) -> bool:
        """Whether it is idle, and no agent that works shares a core with it."""
        return agent.is_idle and not any(
            a.is_occupying or a.agent_id in self.taken for a in (agent, *self.overlaps(agent))
        )

    def wishes(self, job: WaitingJob) -> tuple[Wish, ...]:
        """Return what its gang may be made of, each alone: the version of most agents first.

        Ranks of different versions would be refused before *go*, so that they are not put together.
        """
        wish = wish_of(job)
        if job.rank_count == 1:
            return (wish,)
        if wish not in self._wishes:
            of_one = self._of_one_version(wish)
            most_first = tuple(sorted(of_one, key=self.capacity, reverse=True))
            self._wishes[wish] = most_first if len(of_one) > 1 else (wish,)
        return self._wishes[wish]

    def _of_one_version(self, wish: Wish) -> list[Wish]:
        """Return the wish for each version of its framework; PyTorch's are capabilities."""
        capabilities, labels, _ = wish
        if TORCH in capabilities:
            return [(capabilities | {v}, labels, frozenset()) for v in self._torch_versions]
        return [(capabilities, labels, frozenset({v})) for v in self._versions]

    def find_gang(self, job: WaitingJob) -> list[LiveAgent] | None:
        """Return free agents for all its ranks, or None."""
        if job.avoid and (groups := self.others_than_avoided(job)):
            for wish, others in groups:
                free = [agent for agent in others if agent.agent_id in self._free]
                limit = self.ranks_on_a_core(job, wish)
                gang = list(itertools.islice(self.disjoint(free, limit), job.rank_count))
                if len(gang) == job.rank_count:
                    return self._spread(job, free, gang=gang, limit=limit)
            return None
        for wish in self.wishes(job):
            limit = self.ranks_on_a_core(job, wish)
            # Where more share a core, more of them may be found than for the jobs before.
            if limit > 1 or job.rank_count <= self._reach.get(wish, self.free_count):
                found = self._find(job, wish, limit=limit)
                if found is not None:
                    return found
        return None

    def _find(self, job: WaitingJob, wish: Wish, *, limit: int) -> list[LiveAgent] | None:
        candidates = self._candidates_for(wish)
        gone: list[str] = []
        free = self._still_free(candidates, gone)
        gang = list(itertools.islice(self.disjoint(free, limit), job.rank_count))
        for agent_id in gone:
            del candidates[agent_id]
        if len(gang) == job.rank_count:
            return self._spread(job, candidates.values(), gang=gang, limit=limit)
        self._reach[wish] = len(gang)
        return None

    def _spread(
        self, job: WaitingJob, candidates: Iterable[LiveAgent], *, gang: list[LiveAgent], limit: int
    ) -> list[LiveAgent]:
        """Return a gang of those that have measured the job's cell least, or else this one.

        It is chosen only once there is some gang, so that nobody waits because of it.
        """
        if not job.measured_by:
            return gang
        free = (agent for agent in candidates if agent.agent_id in self._free)
        spread = self.disjoint(self._least_measured_first(job, free), limit)
        chosen = list(itertools.islice(spread, job.rank_count))
        return chosen if len(chosen) == job.rank_count else gang

    def _least_measured_first(
        self, job: WaitingJob, agents: Iterable[LiveAgent]
    ) -> Iterator[LiveAgent]:
        """Reorder agents that block equally many others and can do equally much.

        Hardware of a kind that has measured the cell goes first, since other kinds are not pooled
        with it. Lazy, for only a few of a thousand agents are looked at.
        """

        def drawbacks(agent: LiveAgent) -> tuple[bool, int]:
            is_foreign = agent.fingerprint not in job.measured_on
            return is_foreign, job.measured_by.get(agent.agent_id, 0)

        def rank(agent: LiveAgent) -> tuple[int, int]:
            return len(self.overlaps(agent)), len(agent.capabilities)

        for _, equals in itertools.groupby(agents, key=rank):
            later: list[LiveAgent] = []
            for agent in equals:
                if drawbacks(agent) == (False, 0):
                    yield agent
                else:
                    later.append(agent)
            yield from sorted(later, key=drawbacks)

    def others_than_avoided(self, job: WaitingJob) -> list[tuple[Wish, list[LiveAgent]]]:
        """Return whom the job must make do with, by wish; empty where it need not, or could not.

        An agent that refuses at once is idle again first, and would use up every attempt.
        """
        if not job.avoid:
            return []
        found = []
        for wish in self.wishes(job):
            others = [a for a in self._serving_for(wish) if a.agent_id not in job.avoid]
            spread = self.disjoint(others, self.ranks_on_a_core(job, wish))
            count = sum(1 for _ in itertools.islice(spread, job.rank_count))
            if count == job.rank_count:
                found.append((wish, others))
        return found

    def take(self, gang: Iterable[LiveAgent]) -> None:
        """Give these agents away; those that share a core with them are free no more."""
        for agent in gang:
            self.taken.add(agent.agent_id)
            self._free.discard(agent.agent_id)
            self._free.difference_update(self._overlaps.get(agent.agent_id, ()))
        self.change_count += 1

    def hold_if_overdue(self, job: WaitingJob, *, reserve_after_s: float) -> None:
        """Keep what the job could use from all jobs after it, if it has waited long enough."""
        if job.waited_s < reserve_after_s:
            return
        for wish in self.wishes(job):
            if self._reach.get(wish) != 0 and self.capacity(wish) >= job.rank_count:
                self._hold(job, wish)

    def _hold(self, job: WaitingJob, wish: Wish) -> None:
        for agent in self._candidates_for(wish).values():
            if agent.agent_id not in self._free:
                continue
            for held in (agent, *self.overlaps(agent)):
                if held.agent_id in self._free:
                    self._free.remove(held.agent_id)
                    self.holders[held.agent_id] = job
        self._reach[wish] = 0
        self.change_count += 1

    def capacity(self, wish: Wish) -> int:
        """Return how many ranks of one gang the farm could serve if all its agents were idle."""
        if wish not in self._capacity:
            self._capacity[wish] = sum(1 for _ in self.disjoint(self._serving_for(wish)))
        return self._capacity[wish]

    def ranks_on_a_core(self, job: WaitingJob, wish: Wish) -> int:
        """Return how many ranks of the job's gang may share a core: as few as it takes.

        That is what it would be if all agents were idle. So a gang for which there are cores
        enough waits for them, and its step time does not depend on who else is at work.
        """
        if not self._can_share:
            return 1
        if wish not in self._own_cores:
            self._own_cores[wish] = sum(1 for _ in self.disjoint(self._serving_for(wish), 1))
        return -(-job.rank_count // max(1, self._own_cores[wish]))

    def disjoint(
        self, agents: Iterable[LiveAgent], ranks_on_a_core: int | None = None
    ) -> Iterator[LiveAgent]:
        """Pass over every agent that shares a core with one before it, unless both may.

        `ranks_on_a_core`: how many of those that may share one, if not any number.
        """
        blocked: set[str] = set()
        sharing: Counter[str] = Counter()
        for agent in agents:
            if agent.agent_id not in blocked:
                yield agent
                may_share = SHARES_CORES in agent.capabilities
                for other in self.overlaps(agent):
                    sharing[other.agent_id] += 1
                    if not (may_share and SHARES_CORES in other.capabilities) or (
                        sharing[other.agent_id] == ranks_on_a_core
                    ):
                        blocked.add(other.agent_id)

    def _still_free(
        self, candidates: Mapping[str, LiveAgent], gone: list[str]
    ) -> Iterator[LiveAgent]:
        """Pass over agents that are free no more, and add them to `gone`."""
        for agent_id, agent in candidates.items():
            if agent_id in self._free:
                yield agent
            else:
                gone.append(agent_id)

    def _candidates_for(self, wish: Wish) -> dict[str, LiveAgent]:
        if wish not in self._candidates:
            self._candidates[wish] = {
                agent.agent_id: agent
                for agent in self._serving_for(wish)
                if agent.agent_id in self._free
            }
        return self._candidates[wish]

    def _serving_for(self, wish: Wish) -> list[LiveAgent]:
        suiting = [agents for agents in self._serving.values() if suits(agents[0], wish)]
        if len(suiting) == 1:
            return suiting[0]
        return sorted(itertools.chain(*suiting), key=lambda a: self._order[a.agent_id])


def _is_torch_version(capability: str) -> bool:
    return capability.startswith(TORCH_VERSION)
