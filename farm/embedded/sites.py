"""Address, cores and folder of each agent of an embedded farm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farm.errors import InvalidSpec

# Of a farm on this machine alone, whose own user may run programs here anyway.
ANY_SCRIPT = {"AGENT_SCRIPTS": "submitted", "AGENT_SCRIPT_VARIABLES": "*"}
_FIRST_PORT = 20_000
_PORTS_PER_AGENT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAgent:
    """One agent's place: its settings, and what to put before its command to run it there."""

    agent_id: str
    settings: Mapping[str, str]
    prefix: tuple[str, ...] = ()


def local_site(number: int, *, count: int, cpus: tuple[int, ...], home: Path) -> LocalAgent:
    """Return the place of the agent with that number, from 0, of `count` on this machine."""
    agent_id = f"local-{number + 1}"
    first_port = _FIRST_PORT + number * _PORTS_PER_AGENT
    settings = {
        "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
        "AGENT_INTERFACE": "lo",
        "AGENT_PORT_RANGE": f"{first_port}-{first_port + _PORTS_PER_AGENT - 1}",
        "AGENT_CPUS": ",".join(map(str, cpus)),
        "AGENT_GPUS": gpu_share(number, count=count),
        "AGENT_STATE_DIR": str(home / "agents" / agent_id),
        **ANY_SCRIPT,
    }
    return LocalAgent(agent_id=agent_id, settings=settings)


def gpu_share(number: int, *, count: int) -> str:
    """Write as a setting which of `count` equal shares of the GPUs is an agent's, from 0."""
    return f"{number + 1}/{count}"


def share_cores(cores: Sequence[int], *, agents: int) -> list[tuple[int, ...]]:
    """Give each agent cores of its own, equally many, or measurements would lie; some stay unused.

    Raises:
        InvalidSpec: fewer than one agent, or more agents than cores.
    """
    if not 1 <= agents <= len(cores):
        raise InvalidSpec(
            "--agents",
            agents,
            f"1 to {len(cores)}, since each agent needs a core of its own "
            "(start farm-agent on more machines for a wider farm)",
        )
    each = len(cores) // agents
    return [tuple(cores[i * each : (i + 1) * each]) for i in range(agents)]
