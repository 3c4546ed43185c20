"""The cost of rented machines: number, hours and price. Pure."""

from __future__ import annotations

from farm.configuration.spec import ServerPlacement

_S_AN_HOUR = 3600


def machine_count(
    world_size: int, server_count: int, server_placement: str | None, *, ranks_per_agent: int = 1
) -> int:
    """Return the machines of ranks that train, and of servers that are not beside these.

    The last machine may have fewer ranks, which an import may say.
    """
    return -(-world_size // ranks_per_agent) + serving_machine_count(server_count, server_placement)


def serving_machine_count(server_count: int, server_placement: str | None) -> int:
    """Return the machines that only serve.

    A table that does not say where its servers are has them on machines of their own.
    """
    return 0 if server_placement == ServerPlacement.COLLOCATED.value else server_count


def cost_usd(machines: int, time_s: float | None, usd_per_hour: float | None) -> float | None:
    """Return what so many machines cost for so long; None where time or price is not known."""
    if time_s is None or usd_per_hour is None:
        return None
    return machines * time_s * usd_per_hour / _S_AN_HOUR
