"""Checks which jobs of a planned sweep fit into the memory of the live agents."""

from __future__ import annotations

from farm.store.agents.agents import live_agents
from farm.submission import SubmissionPlan, within_memory
from web.backend import backend, now, read_session


def for_live_agents(planned: SubmissionPlan) -> SubmissionPlan:
    """Leave out what is too large for all of them; see `within_memory`.

    Raises:
        InvalidSpec: the sweep has such jobs and does not leave out what is impossible.
    """
    with read_session() as session:
        agents = live_agents(session, now=now(), live_within_s=backend().settings.lease_s)
    return within_memory(planned, agents)
