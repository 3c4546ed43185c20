"""Which agents share cores of a machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from farm.gang.views import LiveAgent


def overlapping(agents: Iterable[LiveAgent]) -> dict[str, dict[str, LiveAgent]]:
    """Map each agent that shares a core with others to those others."""
    machines: dict[str, list[LiveAgent]] = {}
    for agent in agents:
        machines.setdefault(agent.machine_id, []).append(agent)
    overlaps: dict[str, dict[str, LiveAgent]] = {}
    for neighbours in machines.values():
        if len(neighbours) == 1:
            continue
        users: dict[int, list[LiveAgent]] = {}
        for agent in neighbours:
            for cpu in agent.cpus:
                users.setdefault(cpu, []).append(agent)
        for sharing in users.values():
            for one, other in itertools.permutations(sharing, 2):
                overlaps.setdefault(one.agent_id, {})[other.agent_id] = other
    return overlaps
