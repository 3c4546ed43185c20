from __future__ import annotations

import pytest

from farm.gang.lifecycle import AttemptState, JobState
from farm.gang.retries import MAX_WAIT_S, AttemptOutcome, RetryPolicy, after_attempt

POLICY = RetryPolicy(max_attempts=3, wait_s=2.0)


@pytest.mark.parametrize("ended", [AttemptState.LOST, AttemptState.VOID])
def test_a_failed_machine_is_retried_with_a_pause_that_doubles(ended: AttemptState) -> None:
    first = after_attempt(ended, attempt_count=1, policy=POLICY)
    second = after_attempt(ended, attempt_count=2, policy=POLICY)
    assert first == AttemptOutcome(state=JobState.WAITING, wait_s=2.0)
    assert second == AttemptOutcome(state=JobState.WAITING, wait_s=4.0)


def test_the_last_attempt_lost_to_a_machine_fails_the_job() -> None:
    last = after_attempt(AttemptState.LOST, attempt_count=3, policy=POLICY)
    assert last == AttemptOutcome(state=JobState.FAILED)


def test_a_failed_configuration_is_never_retried() -> None:
    first = after_attempt(AttemptState.FAILED, attempt_count=1, policy=POLICY)
    assert first == AttemptOutcome(state=JobState.FAILED)


def test_a_job_cancelled_while_its_machine_failed_is_cancelled_and_not_retried() -> None:
    ended = after_attempt(AttemptState.LOST, attempt_count=1, policy=POLICY, cancel_requested=True)
    assert ended == AttemptOutcome(state=JobState.CANCELLED)


def test_a_success_stays_one_although_somebody_cancelled_too_late() -> None:
    ended = after_attempt(
        AttemptState.SUCCEEDED, attempt_count=1, policy=POLICY, cancel_requested=True
    )
    assert ended == AttemptOutcome(state=JobState.SUCCEEDED)


def test_the_pause_is_bounded_after_thousands_of_attempts() -> None:
    patient = RetryPolicy(max_attempts=10_000, wait_s=2.0)
    ended = after_attempt(AttemptState.LOST, attempt_count=9_000, policy=patient)
    assert ended.wait_s == MAX_WAIT_S
