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


def after_attempt(
    ended: AttemptState, *, attempt_count: int, policy: RetryPolicy, cancel_requested: bool = False
) -> JobState:
    """Return the job's next state once an attempt has ended; `attempt_count` includes that one.

    A failed configuration is a result and would fail again, so it is never retried. A failed
    machine says nothing about the configuration, so the job is retried after `pause_s`.
    """
    if ended is AttemptState.SUCCEEDED:
        return JobState.SUCCEEDED
    if cancel_requested or ended is AttemptState.CANCELLED:
        return JobState.CANCELLED
    if ended is AttemptState.FAILED or attempt_count >= policy.max_attempts:
        return JobState.FAILED
    return JobState.WAITING


def pause_s(attempt_count: int, *, policy: RetryPolicy) -> float:
    """Return the pause of a job after `attempt_count` attempts, at least one."""
    return doubled_pause_s(attempt_count, first_s=policy.wait_s, most_s=MAX_WAIT_S)


def doubled_pause_s(failure_count: int, *, first_s: float, most_s: float) -> float:
    """Return the pause after consecutive failures, at least one; it doubles with each."""
    # min() before 2.0 ** n: a count of thousands would overflow a float.
    return min(first_s * 2.0 ** min(failure_count - 1, 32), most_s)


def is_pausing(
    due_at: dt.datetime, *, now: dt.datetime, attempt_count: int, policy: RetryPolicy
) -> bool:
    """Tell whether a waiting job is in the pause before its next attempt.

    Only a retry pauses, and never for longer than its policy says.
    """
    if attempt_count < 1:
        return False
    longest = dt.timedelta(seconds=pause_s(attempt_count, policy=policy))
    return is_to_come(due_at, now=now, longest=longest)


def is_to_come(due_at: dt.datetime, *, now: dt.datetime, longest: dt.timedelta) -> bool:
    """Tell whether a pause, of at most `longest`, is not over yet.

    A later due time was written by a clock that has been set back since.
    """
    return now < due_at <= now + longest
