"""Estimates when busy agents become free. A wrong estimate is never unsafe."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from farm.gang.views import GangAtWork, LiveAgent


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
        """Return when neither the agent nor one that shares its cores works; inf: not known."""
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
        """Turn round those that are expected to be free by then."""
        in_time = [a for a in soonest if self.free_in_s(a, overlaps(a)) <= until_s]
        return in_time[::-1]

    def soonest_first(
        self,
        agents: Iterable[LiveAgent],
        overlaps: Callable[[LiveAgent], Collection[LiveAgent]],
    ) -> list[LiveAgent]:
        """Sort agents by when they are expected to be free, without those of which it is not."""
        times_s = [(self.free_in_s(agent, overlaps(agent)), agent) for agent in agents]
        known = [pair for pair in times_s if pair[0] < math.inf]
        return [agent for _, agent in sorted(known, key=lambda pair: pair[0])]
