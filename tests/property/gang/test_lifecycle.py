from hypothesis import given
from hypothesis import strategies as st

from farm.errors import InvalidTransition
from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    ATTEMPT_TRANSITIONS,
    JOB_TRANSITIONS,
    AttemptState,
    JobState,
    move,
)


@given(st.lists(st.sampled_from(list(JobState)), max_size=20))
def test_a_job_only_ever_moves_along_the_table(targets: list[JobState]) -> None:
    state = JobState.WAITING
    for target in targets:
        allowed = JOB_TRANSITIONS[state]
        try:
            moved = move(state, target)
        except InvalidTransition:
            assert target not in allowed
            continue
        assert moved is target
        assert target in allowed
        # Whatever ran was leased before.
        assert target is not JobState.RUNNING or state is JobState.LEASED
        state = moved


@given(st.lists(st.sampled_from(list(AttemptState)), max_size=30))
def test_an_attempt_never_comes_back_to_a_state_it_has_left(targets: list[AttemptState]) -> None:
    state, seen = AttemptState.PREPARING, [AttemptState.PREPARING]
    for target in targets:
        if target in ATTEMPT_TRANSITIONS[state]:
            state = move(state, target)
            seen.append(state)
    assert len(set(seen)) == len(seen)
    # No attempt goes on for ever: every way ends after as many steps as there are barriers.
    assert len(seen) <= len(ACTIVE_ATTEMPT_STATES) + 1
