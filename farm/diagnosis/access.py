"""Checks that agents sign their messages and run trainers as another user."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from farm.diagnosis.agents import AgentCondition
from farm.diagnosis.finding import Finding, doubt, named, well, wrong
from farm.messages.agents import TRAINER_USER


def judge_access(
    agents: Sequence[AgentCondition], *, keyed: Collection[str], is_beyond: bool
) -> list[Finding]:
    """Name agents without a key, and live ones whose trainers run as the agent itself.

    `keyed`: who has a key that counts. `is_beyond`: the broker is on another machine than the
    server, or may be, so that messages are signed.
    """
    if not is_beyond:
        return [well("the broker is on loopback: this farm is of one machine")]
    found = []
    if keyless := [a.agent_id for a in agents if a.agent_id not in keyed]:
        found.append(
            wrong(
                f"without a key that counts: {named(keyless)}; nothing that they say is taken",
                "`farm agent add NAME` prints what to install there",
            )
        )
    live = [a for a in agents if a.is_live]
    if alike := [a.agent_id for a in live if TRAINER_USER not in a.capabilities]:
        found.append(
            doubt(
                f"trainers run as the agent's own user, and may read what it may: {named(alike)}",
                "set AGENT_TRAINER_USER there (docs/security.md)",
            )
        )
    return found or [well("every agent has a key, and its trainers a user of their own")]
