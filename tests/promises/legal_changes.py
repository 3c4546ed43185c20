"""What may become of a store between two looks: the promises of `invariants` over time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    ATTEMPT_TRANSITIONS,
    FINAL_JOB_STATES,
    JOB_TRANSITIONS,
    AttemptState,
    JobState,
)
from tests.promises.protocol_values import StoreValue

_S = TypeVar("_S", JobState, AttemptState)


def changes_are_legal(
    before: StoreValue, after: StoreValue, *, asked_again: Collection[int] = ()
) -> list[str]:
    """What is over stays as it is, and the rest moves along the table, between two instants.

    `asked_again`: the jobs that a person has asked for again meanwhile.
    """
    found = []
    jobs = {job.id: job for job in after.jobs}
    for job in before.jobs:
        then = jobs.get(job.id)
        if then is None:
            found.append(f"job {job.id} has vanished")
        elif job.state in FINAL_JOB_STATES and job.id not in asked_again and then != job:
            found.append(f"job {job.id} was over: {job}, and is now {then}")
        elif not _is_reachable(job.state, then.state, JOB_TRANSITIONS):
            found.append(f"job {job.id} went from {job.state.value} to {then.state.value}")
    attempts = {attempt.id: attempt for attempt in after.attempts}
    for attempt in before.attempts:
        later = attempts.get(attempt.id)
        if later is None:
            found.append(f"attempt {attempt.id} has vanished")
        elif not _is_reachable(attempt.state, later.state, ATTEMPT_TRANSITIONS):
            found.append(
                f"attempt {attempt.id} went from {attempt.state.value} to {later.state.value}"
            )
    ended = {a.id for a in before.attempts if a.state not in ACTIVE_ATTEMPT_STATES}
    members = {(r.attempt_id, r.rank): r for r in after.ranks}
    found += [
        f"rank {r.rank} of attempt {r.attempt_id}, which was over, has changed"
        for r in before.ranks
        if r.attempt_id in ended and members.get((r.attempt_id, r.rank)) != r
    ]
    last = max((a.id for a in before.attempts), default=0)
    known = {a.id for a in before.attempts}
    found += [
        f"token {a.id} was drawn after {last}"
        for a in after.attempts
        if a.id not in known and a.id <= last
    ]
    kept = set(after.measurements)
    found += [
        f"measurement {m.id} of job {m.job_id} has changed or vanished"
        for m in before.measurements
        if m not in kept and m.job_id not in asked_again
    ]
    return found


def _is_reachable(begin: _S, end: _S, table: Mapping[_S, Collection[_S]]) -> bool:
    """Whether a way of any length leads there, as between two looks much may happen."""
    reached, ahead = {begin}, [begin]
    while ahead:
        onward = set(table[ahead.pop()]) - reached
        reached |= onward
        ahead += onward
    return end in reached
