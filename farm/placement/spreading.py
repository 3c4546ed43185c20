"""Which of equally good agents measures a cell again: the one that has measured it least."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from farm.gang.views import LiveAgent, WaitingJob


def least_measured_first(
    job: WaitingJob, agents: Iterable[LiveAgent], *, likeness: Callable[[LiveAgent], object]
) -> Iterator[LiveAgent]:
    """Reorder agents that follow each other and are alike.

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
