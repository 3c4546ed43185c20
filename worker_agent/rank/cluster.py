"""Gives each process of a rank its place in the cluster, with its peers' addresses."""

from __future__ import annotations

from farm.errors import InvalidSpec
from farm.messages.commands import Go, RankAddress
from farm.messages.trainer_lines import GoLine


def reroute(
    cluster: dict[str, tuple[str, ...]],
    *,
    peers: tuple[RankAddress, ...],
    reached: tuple[RankAddress, ...],
) -> dict[str, tuple[str, ...]]:
    """Return the cluster as one rank sees it: each peer where an emulator has it `reached`."""
    ways = {
        _place(peer.host, port): _place(way.host, way_port)
        for peer, way in zip(peers, reached, strict=True)
        for port, way_port in zip(peer.trainer_ports, way.trainer_ports, strict=True)
    }
    return {
        role: tuple(ways.get(place, place) for place in places) for role, places in cluster.items()
    }


def go_lines(command: Go, *, roles: tuple[str, ...], address: RankAddress) -> tuple[GoLine, ...]:
    """Tell each process of a rank its place: the index of its own address in its role's list.

    Raises:
        InvalidSpec: the cluster lacks one of them.
    """
    lines = []
    for role, port in zip(roles, address.trainer_ports, strict=True):
        own = _place(address.host, port)
        members = command.cluster.get(role, ())
        if own not in members:
            raise InvalidSpec(f"cluster.{role}", list(members), f"{own} among them")
        lines.append(
            GoLine(
                cluster=command.cluster,
                task_index=members.index(own),
                batch_weights=command.batch_weights,
            )
        )
    return tuple(lines)


def _place(host: str, port: int) -> str:
    # An IPv6 address needs brackets before its port.
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
