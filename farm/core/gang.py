"""The commands that lead one gang through the rendezvous, built from what its ranks reported."""

from __future__ import annotations

from collections.abc import Sequence

from farm.core.barriers import Limits, barrier_limit_s
from farm.core.commands import Command, Go, Peers, RankAddress, Shape, StartRank
from farm.core.lifecycle import AttemptState
from farm.core.views import AttemptView


def cluster_spec(
    addresses: Sequence[RankAddress], roles: Sequence[tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return role to host:port, in order of rank; `roles[rank]` are the rank's processes.

    The index of a process in its role's list is its task index.
    """
    cluster: dict[str, tuple[str, ...]] = {}
    for address in sorted(addresses, key=lambda a: a.rank):
        # An IPv6 address needs brackets before its port.
        host = f"[{address.host}]" if ":" in address.host else address.host
        for role, port in zip(roles[address.rank], address.trainer_ports, strict=True):
            cluster[role] = (*cluster.get(role, ()), f"{host}:{port}")
    return cluster


def command_for(
    attempt: AttemptView,
    state: AttemptState,
    rank: int,
    *,
    roles: Sequence[tuple[str, ...]],
    limits: Limits,
) -> Command | None:
    """Return what a rank is told when its attempt is in `state`; None when there is nothing.

    Every rank has reported its address once the attempt is beyond `preparing`.
    """
    if state is AttemptState.PREPARING:
        return StartRank(
            token=attempt.token,
            rank=rank,
            world_size=len(attempt.ranks),
            roles=roles[rank],
            spec=attempt.spec,
            prepare_timeout_s=limits.prepare_s,
        )
    addresses = tuple(r.address for r in attempt.ranks if r.address is not None)
    if state is AttemptState.MEASURING:
        timeout_s = barrier_limit_s(attempt, state, limits=limits)
        return Peers(token=attempt.token, addresses=addresses, timeout_s=timeout_s)
    if state is AttemptState.SHAPING:
        timeout_s = barrier_limit_s(attempt, state, limits=limits)
        return Shape(token=attempt.token, profile=attempt.spec.network, timeout_s=timeout_s)
    if state is AttemptState.STARTING:
        return Go(
            token=attempt.token,
            cluster=cluster_spec(addresses, roles),
            timeout_s=barrier_limit_s(attempt, state, limits=limits),
        )
    return None
