"""Decides when a gang passes each of four barriers before training, and how an attempt ends.

*prepared*: every rank holds its ports and its trainer waits. *peers*: every rank has measured the
untouched network. *shaped*: the profile is applied and verified; without a profile this is reported
together with *peers*. *go*: TensorFlow connects, and every rank has finished its first step. Each
barrier has a time limit, so no gang waits for a missing member for ever. TensorFlow itself would
wait for minutes.

Pure: `decide` takes a snapshot of one attempt and says what to do; the scheduler does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.configuration.spec import BatchSplit
from farm.gang.barriers import BARRIERS, Limits, barrier_limit_s
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.gang.network_check import RankNetwork, find_deviations, find_leftovers
from farm.gang.snapshots import AttemptView, RankView
from farm.gang.weights import unlike_weights
from farm.measuring.noise import NoiseFlag, control_voids
from farm.messages.trainer_lines import Failure, FailureKind

_ORDER = list(RankPhase)
PREPARING_CAUSE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """Repeat the present state's command to ranks that have not answered it."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBarrier:
    """All ranks have passed the barrier: go to `state` and send its command to all of them."""

    state: AttemptState


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The attempt is over, for a reason; a success has none.

    `disturbed`: the flags that made it void. If they name a rank, the next attempt avoids its
    machine. `measurement`: by the columns of its table; the scheduler adds it to a decision.
    """

    state: AttemptState
    failure: Failure | None = None
    disturbed: tuple[NoiseFlag, ...] = ()
    measurement: Mapping[str, Any] | None = None


Decision = Wait | Resend | PassBarrier | AttemptEnd


def decide(attempt: AttemptView, limits: Limits) -> Decision:
    """Decide what to do next with an active attempt."""
    if attempt.cancel_requested:
        return AttemptEnd(state=AttemptState.CANCELLED)
    if end := _end_by_ranks(attempt, limits):
        return end
    barrier = BARRIERS.get(attempt.state)
    if barrier is None:
        return _time_limit(attempt, limits) or Wait()
    behind = [r for r in attempt.ranks if not _has_passed(r, barrier.phase)]
    if not behind:
        # On an untouched network ranks tell of two barriers at once.
        network = attempt.spec.network
        skips_a_barrier = (
            barrier.next_state is AttemptState.SHAPING
            and (network is None or network.is_untouched)
            and all(_has_passed(rank, RankPhase.SHAPED) for rank in attempt.ranks)
        )
        return (
            _unlike_versions(attempt)
            or _drift(attempt, limits)
            or _wrong_network(attempt)
            or _unlike_weights(attempt)
            or PassBarrier(state=AttemptState.STARTING if skips_a_barrier else barrier.next_state)
        )
    limit_s = barrier_limit_s(attempt, attempt.state, limits=limits)
    # An agent has the same limit for *go*, and knows whether a user's own code is what hangs.
    report_s = limits.report_s if attempt.state is AttemptState.STARTING else 0.0
    if attempt.state_age_s >= limit_s + report_s:
        names = ", ".join(f"rank {r.rank} on {r.agent_id}" for r in behind)
        return _lost(
            FailureKind.RENDEZVOUS,
            f"barrier '{barrier.name}' was not reached within {limit_s:g} s by {names}",
        )
    unanswered = tuple(r.rank for r in behind if r.command_age_s >= limits.resend_s)
    return Resend(ranks=unanswered) if unanswered else Wait()


def voided(flags: tuple[NoiseFlag, ...]) -> AttemptEnd:
    """Return the end of a disturbed attempt; its reason is the worst flag, which comes first."""
    others = f" (and {len(flags) - 1} more)" if len(flags) > 1 else ""
    failure = Failure(kind=FailureKind.DISTURBED, message=flags[0].message + others)
    return AttemptEnd(state=AttemptState.VOID, failure=failure, disturbed=flags)


def _drift(attempt: AttemptView, limits: Limits) -> AttemptEnd | None:
    """Void an attempt whose machines have become slower, before anything is measured.

    The control runs are known once all ranks have measured the untouched network.
    """
    if attempt.state is not AttemptState.MEASURING:
        return None
    if attempt.spec.batch_split is BatchSplit.BY_SPEED:
        training = attempt.ranks[: attempt.spec.training_agent_count]
        unknown = [r for r in training if r.control is None]
        if unknown:
            names = ", ".join(f"rank {r.rank} on {r.agent_id}" for r in unknown)
            return _lost(
                FailureKind.REFUSED,
                f"batch_split 'by_speed': no control run, which tells the speed, of {names}",
            )
    runs = [(r.rank, r.agent_id, r.control) for r in attempt.ranks]
    flags = control_voids(runs, limits.noise)
    return voided(flags) if flags else None


def _wrong_network(attempt: AttemptView) -> AttemptEnd | None:
    """Void an attempt whose network is not as requested, before anything is measured."""
    profile = attempt.spec.network
    if attempt.state is not AttemptState.SHAPING or profile is None or profile.is_untouched:
        return None
    deviations = find_deviations(
        profile,
        [
            RankNetwork(
                rank=r.rank,
                agent_id=r.agent_id,
                untouched=r.untouched,
                shaped=r.shaped,
                bandwidths=r.bandwidths,
                emulator=r.emulator,
            )
            for r in attempt.ranks
        ],
    )
    return _void_for(deviations)


def _not_back(attempt: AttemptView) -> AttemptEnd | None:
    """Void a measurement during which somebody else seems to have shaped the network, too."""
    seen = [
        RankNetwork(rank=r.rank, agent_id=r.agent_id, untouched=r.untouched, shaped=r.back)
        for r in attempt.ranks
    ]
    return _void_for(find_leftovers(seen))


def _void_for(deviations: Sequence[str]) -> AttemptEnd | None:
    if not deviations:
        return None
    others = f" (and {len(deviations) - 1} more)" if len(deviations) > 1 else ""
    failure = Failure(kind=FailureKind.NETWORK, message=deviations[0] + others)
    return AttemptEnd(state=AttemptState.VOID, failure=failure)


def _has_passed(rank: RankView, phase: RankPhase) -> bool:
    return _ORDER.index(rank.phase) >= _ORDER.index(phase)


def _lost(kind: FailureKind, message: str) -> AttemptEnd:
    return AttemptEnd(state=AttemptState.LOST, failure=Failure(kind=kind, message=message))


def _unlike_versions(attempt: AttemptView) -> AttemptEnd | None:
    """Refuse a gang with different framework versions, before anything is connected.

    It might fail without naming the cause, or be measured as if it had one version.
    """
    if attempt.state is not AttemptState.PREPARING:
        return None
    first_with: dict[str, RankView] = {}
    for rank in attempt.ranks:
        if rank.framework is not None:
            first_with.setdefault(rank.framework, rank)
    if len(first_with) < 2:
        return None
    having = ", ".join(
        f"rank {rank.rank} on {rank.agent_id} has {framework}"
        for framework, rank in first_with.items()
    )
    return _lost(FailureKind.VERSIONS_DIFFER, f"{having}: install the same version on all agents")


def _unlike_weights(attempt: AttemptView) -> AttemptEnd | None:
    failure = unlike_weights(
        attempt.spec.model,
        [
            (f"rank {rank.rank} on {rank.agent_id}", rank.weights_checksum)
            for rank in attempt.ranks
            if rank.weights_checksum is not None
        ],
    )
    return None if failure is None else AttemptEnd(state=AttemptState.FAILED, failure=failure)


def _end_by_ranks(attempt: AttemptView, limits: Limits) -> AttemptEnd | None:
    """End the attempt if enough is known about its ranks' ends.

    If a rank dies, the collectives of its peers fail, and their reports may arrive first. So a
    failure of the configuration decides at once, whatever other ranks report. Any other failure
    waits until all have reported or `cause_wait_s` have passed. The cause is then a failure other
    than a lost peer, if there is one.

    An error before a trainer is ready is a failure of the machine: a machine without the framework
    fails with every configuration, and must not turn a whole sweep into results.
    """
    failures = [(r, r.failure) for r in attempt.ranks if r.failure is not None]
    for rank, failure in failures:
        never_ready = rank.address is None and failure.kind is FailureKind.TRAINER_RAISED
        if failure.is_of_configuration and not never_ready:
            return AttemptEnd(state=AttemptState.FAILED, failure=_named(rank, failure))
    expired = [r for r in attempt.ranks if r.lease_s <= 0 and r.phase is not RankPhase.ENDED]
    if failures:
        silent = [r for r in attempt.ranks if r.phase is not RankPhase.ENDED and r not in expired]
        if silent and _may_still_speak(attempt, silent, limits):
            return None
        causes = [f for f in failures if f[1].kind is not FailureKind.PEER_LOST]
        if silent and not causes and not expired:
            return _blame_silent(silent, *failures[0])
        if not causes and (end := _blame_early_end(attempt, *failures[0])) is not None:
            return end
        if causes or not expired:
            rank, failure = (causes or failures)[0]
            # Of the network nobody complains while it trains: it was looked at after the end.
            is_void = failure.kind is FailureKind.NETWORK and attempt.state is AttemptState.RUNNING
            state = AttemptState.VOID if is_void else AttemptState.LOST
            return AttemptEnd(state=state, failure=_named(rank, failure))
    if expired:
        names = ", ".join(f"{r.agent_id} (rank {r.rank})" for r in expired)
        return _lost(FailureKind.AGENT_LOST, f"no fresh heartbeat within the lease from {names}")
    if attempt.state is AttemptState.RUNNING and all(r.succeeded for r in attempt.ranks):
        return _not_back(attempt) or AttemptEnd(state=AttemptState.SUCCEEDED)
    return None


def _may_still_speak(attempt: AttemptView, silent: Sequence[RankView], limits: Limits) -> bool:
    """Whether to wait for the reports of silent ranks about a known failure."""
    waited_s = max(r.ended_age_s or 0.0 for r in attempt.ranks if r.failure is not None)
    if attempt.state is AttemptState.PREPARING:
        # Nothing is connected yet, so no failure is an echo, and ranks that are prepared have
        # nothing to add. But what one agent lacks others often lack too, and those that say so
        # now are spared in the next attempt.
        is_open = any(r.phase is RankPhase.LEASED for r in silent)
        return is_open and waited_s < min(PREPARING_CAUSE_WAIT_S, limits.cause_wait_s)
    return waited_s < limits.cause_wait_s


def _blame_silent(silent: Sequence[RankView], witness: RankView, complaint: Failure) -> AttemptEnd:
    """Blame silent ranks for their peers' broken connections.

    A rank that is stopped, or whose machine hangs, cannot report, and its agent notices that much
    later than its peers do.
    """
    names = " and ".join(f"rank {r.rank} on {r.agent_id}" for r in silent)
    return _lost(
        FailureKind.STALLED,
        f"{names} stopped answering, seen by rank {witness.rank} on {witness.agent_id}:"
        f" {complaint.message}",
    )


def _blame_early_end(
    attempt: AttemptView, witness: RankView, complaint: Failure
) -> AttemptEnd | None:
    """Blame a rank that has finished for the broken connection of one that still trains.

    If steps are counted, such a rank reports itself that it has made too few.
    """
    done = [rank for rank in attempt.ranks if rank.succeeded]
    if not done or attempt.spec.steps is not None or attempt.spec.epochs is not None:
        return None
    message = (
        f"rank {done[0].rank} on {done[0].agent_id} ended while rank {witness.rank} on "
        f"{witness.agent_id} went on, and every rank has to make as many steps: "
        f"{complaint.message}"
    )
    failure = Failure(kind=FailureKind.TRAINER_RAISED, message=message)
    return AttemptEnd(state=AttemptState.FAILED, failure=failure)


def _named(rank: RankView, failure: Failure) -> Failure:
    return Failure(
        kind=failure.kind, message=f"rank {rank.rank} on {rank.agent_id}: {failure.message}"
    )


def _time_limit(attempt: AttemptView, limits: Limits) -> AttemptEnd | None:
    """End an attempt whose last reports were lost.

    Each agent enforces the limit on its rank, and its report is the result. A missing report says
    nothing about the configuration.
    """
    limit_s = attempt.spec.time_limit_s
    if attempt.state_age_s < limit_s + limits.end_s:
        return None
    silent = [r for r in attempt.ranks if r.phase is not RankPhase.ENDED]
    names = ", ".join(f"rank {r.rank} on {r.agent_id}" for r in silent)
    message = f"no end within {limits.end_s:g} s after time_limit_s = {limit_s:g} from {names}"
    return _lost(FailureKind.STALLED, message)
