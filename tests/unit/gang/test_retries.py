from __future__ import annotations

import pytest

from farm.gang.lifecycle import AttemptState, JobState
from farm.gang.retries import MAX_WAIT_S, RetryPolicy, after_attempt, pause_s

POLICY = RetryPolicy(max_attempts=3, wait_s=2.0)


@pytest.mark.parametrize("ended", [AttemptState.LOST, AttemptState.VOID])
def test_a_failed_machine_is_retried_with_a_pause_that_doubles(ended: AttemptState) -> None:
    for attempt_count, wait_s in ((1, 2.0), (2, 4.0)):
        after = after_attempt(ended, attempt_count=attempt_count, policy=POLICY)
        assert after is JobState.WAITING
        assert pause_s(attempt_count, policy=POLICY) == wait_s


def test_the_last_attempt_lost_to_a_machine_fails_the_job() -> None:
    last = after_attempt(AttemptState.LOST, attempt_count=3, policy=POLICY)
    assert last is JobState.FAILED


def test_a_failed_configuration_is_never_retried() -> None:
    first = after_attempt(AttemptState.FAILED, attempt_count=1, policy=POLICY)
    assert first is JobState.FAILED


def test_a_job_cancelled_while_its_machine_failed_is_cancelled_and_not_retried() -> None:
    ended = after_attempt(AttemptState.LOST, attempt_count=1, policy=POLICY, cancel_requested=True)
    assert ended is JobState.CANCELLED


def test_a_success_stays_one_although_somebody_cancelled_too_late() -> None:
    ended = after_attempt(
        AttemptState.SUCCEEDED, attempt_count=1, policy=POLICY, cancel_requested=True
    )
    assert ended is JobState.SUCCEEDED


def test_the_pause_is_bounded_after_thousands_of_attempts() -> None:
    patient = RetryPolicy(max_attempts=10_000, wait_s=2.0)
    assert after_attempt(AttemptState.LOST, attempt_count=9_000, policy=patient) is JobState.WAITING
    assert pause_s(9_000, policy=patient) == MAX_WAIT_S
