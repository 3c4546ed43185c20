"""Tracks free and reserved agents during one scheduling decision, and when busy ones become free.

A wrong estimate is never unsafe.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from farm.gang.snapshots import GangAtWork, LiveAgent, WaitingJob
from farm.placement.agent_index import AgentIndex, Requirement, satisfies


@dataclass(frozen=True, slots=True)
class Reservation:
    """The agents of a gang to come, and in how many seconds the last of them is expected."""

    at_s: float
    agents: tuple[LiveAgent, ...]


class AvailabilityForecast:
    """The expected ends of the gangs at work, and of those that this decision adds."""

    def __init__(self, gangs: Collection[GangAtWork] = ()) -> None:
        self._ends_s = {agent_id: gang.remaining_s for gang in gangs for agent_id in gang.agent_ids}
        # None: of some gang nothing is known, so how long it may take is not either.
        lengths_s = [
            None if gang.remaining_s is None else gang.age_s + gang.remaining_s for gang in gangs
        ]
        known_s = [length_s for length_s in lengths_s if length_s is not None]
        self.longest_s = max(known_s, default=0.0) if len(known_s) == len(lengths_s) else None

    def begin(self, agent_id: str, expected_s: float | None) -> None:
        """Note that the agent begins to work now."""
        self._ends_s[agent_id] = expected_s

    def expect(self, agent_id: str, at_s: float, expected_s: float | None) -> None:
        """Note that the agent will begin something in `at_s`."""
        self._ends_s[agent_id] = None if expected_s is None else at_s + expected_s

    def free_in_s(self, agent: LiveAgent, overlaps: Collection[LiveAgent]) -> float:
        """Return when the agent and those that share its cores are free; inf: not known."""
        ends_s = 0.0
        for one in (agent, *overlaps):
            end_s = self._ends_s.get(one.agent_id, None if one.is_occupying else 0.0)
            if end_s is None:
                return math.inf
            ends_s = max(ends_s, end_s)
        return ends_s

    def latest_first(
        self,
        soonest: Iterable[LiveAgent],
        overlaps: Callable[[LiveAgent], Collection[LiveAgent]],
        *,
        until_s: float,
    ) -> list[LiveAgent]:
        """Return the agents expected to be free by `until_s`, in reverse order."""
        in_time = [a for a in soonest if self.free_in_s(a, overlaps(a)) <= until_s]
        return in_time[::-1]

    def soonest_first(
        self,
        agents: Iterable[LiveAgent],
        overlaps: Callable[[LiveAgent], Collection[LiveAgent]],
    ) -> list[LiveAgent]:
        """Sort agents by when they are expected to be free, without those where it is unknown."""
        times_s = [(self.free_in_s(agent, overlaps(agent)), agent) for agent in agents]
        known = [pair for pair in times_s if pair[0] < math.inf]
        return [agent for _, agent in sorted(known, key=lambda pair: pair[0])]


class AgentPool:
    """The agents during one decision: which are free still, and which are held for whom.

    An agent is free while it is idle, shares no core with one that works, and is neither taken
    nor held in this decision. Agents that are neither idle nor at work (drained, or with a full
    spool) play no part. One that is reserved until some time is free to those that are expected
    to have done with it by then.
    """

    def __init__(
        self, agents: Collection[LiveAgent], forecast: AvailabilityForecast | None = None
    ) -> None:
        self.index = AgentIndex(agents)
        self.forecast = forecast or AvailabilityForecast()
        self.taken: set[str] = set()
        self.holders: dict[str, WaitingJob] = {}
        self.reserved_until_s: dict[str, float] = {}
        self._latest_s = 0.0  # of these
        self.change_count = 0
        self._free = {a.agent_id for a in self.index.agents if self.is_unblocked(a)}
        # By requirement, in order: who was free when last looked at.
        self._candidates: dict[Requirement, dict[str, LiveAgent]] = {}
        # Disjoint free agents found for a requirement when they last did not suffice. Agents only
        # become fewer during a decision, so wider jobs need not look again.
        self._reach: dict[Requirement, int] = {}
        # The same for brief jobs among reserved agents: what did not suffice for how long a job.
        self._brief_reach: dict[Requirement, tuple[int, float]] = {}
        self._unforeseen: dict[Requirement, int] = {}
        self._is_awaited: set[Requirement] = set()

    @property
    def free_count(self) -> int:
        """Return how many agents somebody may still be given, if only for a while."""
        return len(self._free) + len(self.reserved_until_s)

    def is_unblocked(self, agent: LiveAgent) -> bool:
        """Whether it is idle, and no agent that works shares a core with it."""
        return agent.is_idle and not any(
            a.is_occupying or a.agent_id in self.taken for a in (agent, *self.index.overlaps(agent))
        )

    def find_gang(self, job: WaitingJob) -> list[LiveAgent] | None:
        """Return free agents for all its ranks, or None."""
        gang = self._find_free(job)
        if gang is None and job.expected_s is not None and job.expected_s <= self._latest_s:
            return self._find_brief(job, job.expected_s)
        return gang

    def _find_brief(self, job: WaitingJob, expected_s: float) -> list[LiveAgent] | None:
        """Return agents that are free, or reserved until the job is expected to be done."""
        if self.agents_not_avoided(job):
            return None
        lent = [
            self.index.by_id[agent_id]
            for agent_id, until_s in self.reserved_until_s.items()
            if expected_s <= until_s
        ]
        for requirement in self.index.requirements(job):
            count, brief_s = self._brief_reach.get(requirement, (0, 0.0))
            if 0 < count <= job.agent_count and brief_s <= expected_s:
                continue
            free = [a for i, a in self._candidates_for(requirement).items() if i in self._free]
            found = [*free, *(agent for agent in lent if satisfies(agent, requirement))]
            found.sort(key=lambda agent: self.index.order[agent.agent_id])
            limit = self.index.ranks_on_a_core(job, requirement)
            gang = list(itertools.islice(self.index.disjoint(found, limit), job.agent_count))
            if len(gang) == job.agent_count:
                return gang
            if limit == 1:
                self._brief_reach[requirement] = job.agent_count, expected_s
        return None

    def _find_free(self, job: WaitingJob) -> list[LiveAgent] | None:
        if job.avoid and (groups := self.agents_not_avoided(job)):
            for requirement, others in groups:
                free = [agent for agent in others if agent.agent_id in self._free]
                limit = self.index.ranks_on_a_core(job, requirement)
                gang = list(itertools.islice(self.index.disjoint(free, limit), job.agent_count))
                if len(gang) == job.agent_count:
                    return self._spread(job, free, gang=gang, limit=limit)
            return None
        for requirement in self.index.requirements(job):
            limit = self.index.ranks_on_a_core(job, requirement)
            # Where more share a core, more of them may be found than for the jobs before.
            if limit > 1 or job.agent_count <= self._reach.get(requirement, self.free_count):
                found = self._find(job, requirement, limit=limit)
                if found is not None:
                    return found
        return None

    def _find(
        self, job: WaitingJob, requirement: Requirement, *, limit: int
    ) -> list[LiveAgent] | None:
        candidates = self._candidates_for(requirement)
        gone: list[str] = []
        free = self._still_free(candidates, gone)
        gang = list(itertools.islice(self.index.disjoint(free, limit), job.agent_count))
        for agent_id in gone:
            del candidates[agent_id]
        if len(gang) == job.agent_count:
            return self._spread(job, candidates.values(), gang=gang, limit=limit)
        self._reach[requirement] = len(gang)
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
        spread = self.index.disjoint(
            least_measured_first(job, free, likeness=self.index.likeness), limit
        )
        chosen = list(itertools.islice(spread, job.agent_count))
        return chosen if len(chosen) == job.agent_count else gang

    def agents_not_avoided(self, job: WaitingJob) -> list[tuple[Requirement, list[LiveAgent]]]:
        """Return by requirement the agents that the job does not avoid; nothing if too few.

        An agent that refuses at once is idle again first, and would use up every attempt.
        """
        if not job.avoid:
            return []
        found = []
        for requirement in self.index.requirements(job):
            others = [a for a in self.index.serving_for(requirement) if a.agent_id not in job.avoid]
            spread = self.index.disjoint(others, self.index.ranks_on_a_core(job, requirement))
            count = sum(1 for _ in itertools.islice(spread, job.agent_count))
            if count == job.agent_count:
                found.append((requirement, others))
        return found

    def take(self, gang: Iterable[LiveAgent], *, expected_s: float | None = None) -> None:
        """Take these agents; those that share a core with them are no longer free."""
        for agent in gang:
            self.taken.add(agent.agent_id)
            self.forecast.begin(agent.agent_id, expected_s)
            for gone in (agent.agent_id, *(a.agent_id for a in self.index.overlaps(agent))):
                self._free.discard(gone)
                self.reserved_until_s.pop(gone, None)
        self.change_count += 1

    def reservation(self, job: WaitingJob) -> Reservation | None:
        """Return the agents that are expected to form a gang first; None: not known."""
        if self.agents_not_avoided(job):
            return None
        found = []
        for requirement in self.index.requirements(job):
            if self.index.capacity(requirement) < job.agent_count:
                continue
            if job.agent_count >= self._unforeseen.get(requirement, job.agent_count + 1):
                continue
            limit = self.index.ranks_on_a_core(job, requirement)
            soonest = self.forecast.soonest_first(
                self.index.serving_for(requirement), self.index.overlaps
            )
            gang = list(itertools.islice(self.index.disjoint(soonest, limit), job.agent_count))
            if len(gang) < job.agent_count:
                self._unforeseen[requirement] = job.agent_count
                continue
            at_s = max(self.forecast.free_in_s(agent, self.index.overlaps(agent)) for agent in gang)
            # Those that are at work until then rather than idle ones, which others can use.
            latest = self.forecast.latest_first(soonest, self.index.overlaps, until_s=at_s)
            spared = list(itertools.islice(self.index.disjoint(latest, limit), job.agent_count))
            found.append(
                Reservation(at_s, tuple(spared if len(spared) == job.agent_count else gang))
            )
        return min(found, key=lambda r: r.at_s, default=None)

    def reserve(self, job: WaitingJob, reservation: Reservation) -> None:
        """Keep these agents for the job from all after it that would not be done by then."""
        for agent in reservation.agents:
            for kept in (agent, *self.index.overlaps(agent)):
                if kept.agent_id in self._free:
                    self._free.remove(kept.agent_id)
                    self.holders[kept.agent_id] = job
                    self.reserved_until_s[kept.agent_id] = reservation.at_s
                    self._latest_s = max(self._latest_s, reservation.at_s)
            self.forecast.expect(agent.agent_id, reservation.at_s, job.expected_s)
        self._is_awaited.update(self.index.requirements(job))
        self.change_count += 1

    def hold(self, job: WaitingJob) -> None:
        """Reserve the agents that the job could use."""
        for requirement in self.index.requirements(job):
            if (
                self._reach.get(requirement) != 0
                and self.index.capacity(requirement) >= job.agent_count
            ):
                self._hold(job, requirement)

    def is_awaited(self, job: WaitingJob) -> bool:
        """Whether agents like those that the job needs are reserved for another already.

        One at a time: each keeps all others from its agents until the last of them comes.
        """
        return not self._is_awaited.isdisjoint(self.index.requirements(job))

    def has_any(self, job: WaitingJob) -> bool:
        """Whether some agent is free that could be kept for the job."""
        return any(
            agent_id in self._free
            for requirement in self.index.requirements(job)
            if self._reach.get(requirement) != 0
            for agent_id in self._candidates_for(requirement)
        )

    def _hold(self, job: WaitingJob, requirement: Requirement) -> None:
        for agent_id in [
            i for i in self.reserved_until_s if satisfies(self.index.by_id[i], requirement)
        ]:
            del self.reserved_until_s[agent_id]
        for agent in self._candidates_for(requirement).values():
            if agent.agent_id not in self._free:
                continue
            for held in (agent, *self.index.overlaps(agent)):
                if held.agent_id in self._free:
                    self._free.remove(held.agent_id)
                    self.holders[held.agent_id] = job
        self._reach[requirement] = 0
        self.change_count += 1

    def _still_free(
        self, candidates: Mapping[str, LiveAgent], gone: list[str]
    ) -> Iterator[LiveAgent]:
        """Pass over agents that are free no more, and add them to `gone`."""
        for agent_id, agent in candidates.items():
            if agent_id in self._free:
                yield agent
            else:
                gone.append(agent_id)

    def _candidates_for(self, requirement: Requirement) -> dict[str, LiveAgent]:
        if requirement not in self._candidates:
            self._candidates[requirement] = {
                agent.agent_id: agent
                for agent in self.index.serving_for(requirement)
                if agent.agent_id in self._free
            }
        return self._candidates[requirement]


def least_measured_first(
    job: WaitingJob, agents: Iterable[LiveAgent], *, likeness: Callable[[LiveAgent], object]
) -> Iterator[LiveAgent]:
    """Reorder similar agents: those that measured the cell least often come first.

    Hardware of a kind that has measured the cell goes first, since other kinds are not pooled
    with it. Lazy, for only a few of a thousand agents are looked at.
    """

    def drawbacks(agent: LiveAgent) -> tuple[bool, int]:
        is_foreign = agent.fingerprint not in job.measured_on
        return is_foreign, job.measured_by.get(agent.agent_id, 0)

    for _, equals in itertools.groupby(agents, key=likeness):
        later: list[LiveAgent] = []
        for agent in equals:
            if drawbacks(agent) == (False, 0):
                yield agent
            else:
                later.append(agent)
        yield from sorted(later, key=drawbacks)
