"""Where this rank's processes stand in the cluster that *go* brings."""

from __future__ import annotations

from farm.core.commands import RankAddress
from farm.core.trainer_lines import GoLine
from farm.errors import InvalidSpec


def go_lines(
    cluster: dict[str, tuple[str, ...]], *, roles: tuple[str, ...], address: RankAddress
) -> tuple[GoLine, ...]:
    """Tell each process of a rank its place: the index of its own address in its role's list.

    Raises:
        InvalidSpec: the cluster lacks one of them.
    """
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = []
    for role, port in zip(roles, address.trainer_ports, strict=True):
        own = f"{host}:{port}"
        members = cluster.get(role, ())
        if own not in members:
            raise InvalidSpec(f"cluster.{role}", list(members), f"{own} among them")
        lines.append(GoLine(cluster=cluster, task_index=members.index(own)))
    return tuple(lines)
