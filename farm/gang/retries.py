"""Decides whether an attempt that has ended yields a result, a retry or a failure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from farm.gang.lifecycle import AttemptState, JobState

MAX_WAIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`wait_s` is the pause before the second attempt; it doubles before each further one."""

    max_attempts: int = 3
    wait_s: float = 2.0


DEFAULT_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """The job's next state after an attempt; `wait_s`: the pause before it is tried again."""

    state: JobState
    wait_s: float | None = None


def after_attempt(
    ended: AttemptState, *, attempt_count: int, policy: RetryPolicy, cancel_requested: bool = False
) -> AttemptOutcome:
    """Decide from how an attempt ended, its own count included in `attempt_count`.

    A failed configuration is a result and would fail again, so it is never retried; a machine
    that failed says nothing of the configuration, so the job goes to other machines or waits.
    """
    if ended is AttemptState.SUCCEEDED:
        return AttemptOutcome(state=JobState.SUCCEEDED)
    if cancel_requested or ended is AttemptState.CANCELLED:
        return AttemptOutcome(state=JobState.CANCELLED)
    if ended is AttemptState.FAILED or attempt_count >= policy.max_attempts:
        return AttemptOutcome(state=JobState.FAILED)
    return AttemptOutcome(state=JobState.WAITING, wait_s=pause_s(attempt_count, policy=policy))


def pause_s(attempt_count: int, *, policy: RetryPolicy) -> float:
    """Return how long a job pauses after so many attempts, at least one."""
    # min() before 2.0 ** n: a count of thousands would overflow a float.
    doublings = min(attempt_count - 1, 32)
    return min(policy.wait_s * 2.0**doublings, MAX_WAIT_S)


def is_pausing(
    due_at: dt.datetime, *, now: dt.datetime, attempt_count: int, policy: RetryPolicy
) -> bool:
    """Tell whether a job that waits is in the pause before its next attempt.

    Only a retry pauses, and never for longer than its policy says: a job that is due later than
    that was written by a clock that has been set back since, and is due now.
    """
    left_s = (due_at - now).total_seconds()
    return left_s > 0 and attempt_count > 0 and left_s <= pause_s(attempt_count, policy=policy)
