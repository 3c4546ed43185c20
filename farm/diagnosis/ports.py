"""Checks whether gang ports are open to hosts outside the gang.

TensorFlow's servers behind these ports do not authenticate their clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from farm.diagnosis.agents import AgentCondition
from farm.diagnosis.finding import Finding, doubt, named, well
from farm.messages.agents import CLOSES_PORTS
from farm.text.nouns import counted


def judge_ports(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Name the live agents that leave their ranks' ports open to everybody."""
    live = [a for a in agents if a.is_live]
    if not live:
        return [well("nobody is alive who would have a port open")]
    if leaving := [a.agent_id for a in live if CLOSES_PORTS not in a.capabilities]:
        return [
            doubt(
                f"open to whoever reaches the machine are the trainers' ports of {named(leaving)}",
                "run these agents with CAP_NET_ADMIN and nft, or have a firewall open "
                "AGENT_PORT_RANGE to the other agents alone (docs/security.md)",
            )
        ]
    return [well(f"{counted(len(live), 'agent')} open a gang's ports to its peers alone")]
