"""Builds the commands that lead a gang through the rendezvous, from its ranks' reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farm.configuration.spec import BatchSplit
from farm.errors import InvalidSpec
from farm.gang.barriers import Limits, barrier_limit_s
from farm.gang.lifecycle import AttemptState
from farm.gang.views import AttemptView
from farm.messages.commands import Command, Go, Peers, RankAddress, Shape, StartRank


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


def batch_weights(attempt: AttemptView) -> tuple[float, ...] | None:
    """Return the share of a global batch that each rank that trains takes, the sum being 1.

    In proportion to its agent's speed: how often in a second its cores together could do the fixed
    piece of work of its control run, which each of them does by itself; or, if all ranks have
    GPUs, how often these could do theirs. None where the batch is shared evenly, and where a rank's
    speed is not known.
    """
    if attempt.spec.batch_split is BatchSplit.EVEN:
        return None
    training = attempt.ranks[: attempt.spec.training_agent_count]
    speeds = [1 / r.device_control_s for r in training if r.device_control_s]
    if len(speeds) < len(training):
        speeds = [
            r.control.core_count / r.control.control_s
            for r in training
            if r.control is not None and r.control.control_s > 0
        ]
    if len(speeds) < len(training):
        return None
    each = attempt.spec.ranks_per_agent
    return tuple(speed / sum(speeds) / each for speed in speeds for _ in range(each))


def commands_for(
    attempt: AttemptView,
    state: AttemptState,
    ranks: Iterable[int],
    *,
    limits: Limits,
) -> dict[int, Command]:
    """Return the commands for these ranks when their attempt is in `state`; empty: none is due.

    Every rank has reported its address once the attempt is beyond `preparing`.

    Raises:
        InvalidSpec: the attempt has more or fewer ranks than its job needs.
    """
    if state is AttemptState.PREPARING:
        wanted = attempt.spec.agent_count
        if len(attempt.ranks) != wanted:  # leased by a version that knew no servers apart
            raise InvalidSpec("ranks", len(attempt.ranks), f"{wanted}, as the job asks for")
        roles = attempt.spec.roles
        return {
            rank: StartRank(
                token=attempt.token,
                job_id=attempt.job_id,
                rank=rank,
                agent_count=wanted,
                roles=roles[rank],
                spec=attempt.spec,
                prepare_timeout_s=limits.prepare_s,
            )
            for rank in ranks
        }
    shared = _shared_command(attempt, state, limits=limits)
    return {} if shared is None else dict.fromkeys(ranks, shared)


def _shared_command(attempt: AttemptView, state: AttemptState, *, limits: Limits) -> Command | None:
    """Return the command that is the same for every rank, with the addresses of all."""
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
            cluster=cluster_spec(addresses, attempt.spec.roles),
            timeout_s=barrier_limit_s(attempt, state, limits=limits),
            batch_weights=batch_weights(attempt),
        )
    return None
