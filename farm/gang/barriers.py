"""The barriers before a gang trains: their time limits, and the commands sent at each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from farm.configuration.spec import BatchSplit
from farm.errors import InvalidSpec
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.gang.network_check import verification_s
from farm.gang.snapshots import AttemptView
from farm.measuring.noise import NoiseLimits
from farm.messages.commands import Command, Go, Peers, RankAddress, Shape, StartRank

# To apply a profile, before anything can be timed.
_APPLY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits of the barriers, and the interval at which unanswered commands are repeated."""

    prepare_s: float = 120.0
    peers_s: float = 20.0
    shape_s: float = 30.0
    start_s: float = 120.0
    report_s: float = 10.0  # how much longer *go* is waited for, until the ranks have said why not
    resend_s: float = 3.0
    cause_wait_s: float = 3.0  # how long a gang's other ranks may take to say what they saw
    end_s: float = 60.0  # how long after its time limit a rank's own word is waited for
    noise: NoiseLimits = field(default_factory=NoiseLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """A barrier: in its state, an attempt waits for all ranks to reach `phase`."""

    name: str
    phase: RankPhase
    next_state: AttemptState


BARRIERS = {
    AttemptState.PREPARING: Barrier(
        name="prepared", phase=RankPhase.PREPARED, next_state=AttemptState.MEASURING
    ),
    AttemptState.MEASURING: Barrier(
        name="peers", phase=RankPhase.MEASURED, next_state=AttemptState.SHAPING
    ),
    AttemptState.SHAPING: Barrier(
        name="shaped", phase=RankPhase.SHAPED, next_state=AttemptState.STARTING
    ),
    AttemptState.STARTING: Barrier(
        name="go", phase=RankPhase.STARTED, next_state=AttemptState.RUNNING
    ),
}


def barrier_limit_s(attempt: AttemptView, state: AttemptState, *, limits: Limits) -> float:
    """Return the time limit of a rendezvous state.

    Long delays, low bandwidths and many ranks take longer to verify than `shape_s` allows.
    """
    profile = attempt.spec.network
    if state is AttemptState.SHAPING and profile is not None:
        needed_s = _APPLY_S + verification_s(profile, agent_count=len(attempt.ranks))
        return max(limits.shape_s, float(math.ceil(needed_s)))
    return {
        AttemptState.PREPARING: limits.prepare_s,
        AttemptState.MEASURING: limits.peers_s,
        AttemptState.SHAPING: limits.shape_s,
        AttemptState.STARTING: limits.start_s,
    }[state]


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

    Shares are proportional to the agents' speeds: how often a second all cores together could do
    the work of the control run, which each core does by itself; or, if all ranks have GPUs, the
    same for the GPUs. None if the batch is shared evenly, or if a rank's speed is not known.
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
    """Return the commands for these ranks when their attempt is in `state`; empty if none is due.

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
    if state not in BARRIERS:
        return {}
    # The same for every rank, with the addresses of all.
    addresses = tuple(r.address for r in attempt.ranks if r.address is not None)
    timeout_s = barrier_limit_s(attempt, state, limits=limits)
    command: Command
    if state is AttemptState.MEASURING:
        command = Peers(token=attempt.token, addresses=addresses, timeout_s=timeout_s)
    elif state is AttemptState.SHAPING:
        command = Shape(token=attempt.token, profile=attempt.spec.network, timeout_s=timeout_s)
    else:
        command = Go(
            token=attempt.token,
            cluster=cluster_spec(addresses, attempt.spec.roles),
            timeout_s=timeout_s,
            batch_weights=batch_weights(attempt),
        )
    return dict.fromkeys(ranks, command)
