"""The barriers before a gang trains, and how long each may take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from farm.gang.lifecycle import AttemptState, RankPhase
from farm.gang.network_check import verification_s
from farm.gang.views import AttemptView
from farm.measuring.noise import NoiseLimits

# To apply a profile, before anything can be timed.
_APPLY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each barrier may take, and how soon an unanswered command is sent again."""

    prepare_s: float = 120.0
    peers_s: float = 20.0
    shape_s: float = 30.0
    start_s: float = 120.0
    report_s: float = 10.0  # how much longer *go* is waited for, until the ranks have said why not
    resend_s: float = 3.0
    verdict_s: float = 3.0  # how long a gang's other ranks may take to say what they saw
    end_s: float = 60.0  # how long after its time limit a rank's own word is waited for
    noise: NoiseLimits = field(default_factory=NoiseLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """While an attempt is in the state of this barrier, its ranks are on their way to `phase`."""

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
    """Return how long an attempt may stay in a rendezvous state.

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
