import pytest

from farm.errors import InvalidTransition
from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    ACTIVE_JOB_STATES,
    ATTEMPT_TRANSITIONS,
    FINAL_JOB_STATES,
    JOB_TRANSITIONS,
    AttemptState,
    JobState,
    move,
)


def test_the_tables_know_every_state() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert set(ATTEMPT_TRANSITIONS) == set(AttemptState)


def test_a_job_goes_from_waiting_over_leased_and_running_to_its_end() -> None:
    state = JobState.WAITING
    for target in (JobState.LEASED, JobState.RUNNING, JobState.SUCCEEDED):
        state = move(state, target)
    assert state is JobState.SUCCEEDED


@pytest.mark.parametrize("state", [JobState.LEASED, JobState.RUNNING])
def test_a_lost_gang_sends_the_job_back_to_waiting(state: JobState) -> None:
    assert move(state, JobState.WAITING) is JobState.WAITING


def test_a_success_is_final() -> None:
    assert JOB_TRANSITIONS[JobState.SUCCEEDED] == frozenset()
    with pytest.raises(InvalidTransition, match="succeeded leads to nothing: it is final"):
        move(JobState.SUCCEEDED, JobState.WAITING)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_what_failed_or_was_cancelled_may_only_be_asked_for_again(state: JobState) -> None:
    assert JOB_TRANSITIONS[state] == {JobState.WAITING}


def test_a_job_that_was_never_leased_cannot_succeed_or_fail() -> None:
    for target in (JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED):
        with pytest.raises(InvalidTransition, match="waiting leads to cancelled, leased; not to"):
            move(JobState.WAITING, target)


def test_every_job_is_waiting_active_or_final() -> None:
    assert set(JobState) == {JobState.WAITING} | ACTIVE_JOB_STATES | FINAL_JOB_STATES
    assert not ACTIVE_JOB_STATES & FINAL_JOB_STATES


def test_an_attempt_passes_the_barriers_in_order_and_skips_only_that_of_the_profile() -> None:
    barriers = [
        AttemptState.PREPARING,
        AttemptState.MEASURING,
        AttemptState.SHAPING,
        AttemptState.STARTING,
        AttemptState.RUNNING,
        AttemptState.SUCCEEDED,
    ]
    for here, state in enumerate(barriers[:-1]):
        onward = [target for target in barriers if target in ATTEMPT_TRANSITIONS[state]]
        assert onward[0] is barriers[here + 1]
        may_skip = [AttemptState.STARTING] if state is AttemptState.MEASURING else []
        assert onward[1:] == may_skip


def test_an_active_attempt_can_end_badly_at_any_time_and_an_ended_one_not_at_all() -> None:
    bad = {AttemptState.FAILED, AttemptState.LOST, AttemptState.VOID, AttemptState.CANCELLED}
    for state in AttemptState:
        if state in ACTIVE_ATTEMPT_STATES:
            assert bad <= ATTEMPT_TRANSITIONS[state]
        else:
            assert not ATTEMPT_TRANSITIONS[state]
    assert set(AttemptState) - ACTIVE_ATTEMPT_STATES == bad | {AttemptState.SUCCEEDED}


def test_a_job_never_becomes_what_only_an_attempt_can_be() -> None:
    with pytest.raises(InvalidTransition):
        move(JobState.RUNNING, AttemptState.SUCCEEDED)  # type: ignore[type-var] # the point
