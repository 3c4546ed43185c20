"""Share the cores of one machine among agents: disjoint and equal, or measurements would lie."""

from __future__ import annotations

from collections.abc import Sequence

from farm.errors import InvalidSpec


def share_cores(cores: Sequence[int], *, agents: int) -> list[tuple[int, ...]]:
    """Give each agent the same number of cores; what does not divide evenly stays unused.

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
