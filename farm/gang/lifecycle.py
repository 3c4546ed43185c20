"""The states of jobs, attempts and ranks, and the one table of legal transitions.

A job is a configuration to measure. An attempt is one try of a job by one gang. A rank is one
member of that gang. `lost` and `void` are states of an attempt only: its job goes back to `waiting`
or, when the retry policy is exhausted, to `failed`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from farm.errors import InvalidTransition


class JobState(enum.Enum):
    WAITING = "waiting"  # not leased; may have failed attempts behind it
    LEASED = "leased"  # a gang is in its rendezvous
    RUNNING = "running"  # every rank has finished its first step
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(enum.Enum):
    """The active states are also the phases of the rendezvous, one for each barrier."""

    PREPARING = "preparing"  # until every rank holds its ports and its trainer waits
    MEASURING = "measuring"  # until every rank knows the untouched round-trip times
    SHAPING = "shaping"  # until every rank has verified its network profile
    STARTING = "starting"  # go was sent; until every rank finished its first step
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the configuration failed: a result
    LOST = "lost"  # a machine failed
    VOID = "void"  # it ran, but not under the conditions it claims
    CANCELLED = "cancelled"


class RankPhase(enum.Enum):
    """The last barrier that a rank has reached."""

    LEASED = "leased"
    PREPARED = "prepared"
    MEASURED = "measured"
    SHAPED = "shaped"
    STARTED = "started"
    ENDED = "ended"


class SweepState(enum.Enum):
    """Derived from a sweep's jobs, never stored."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


_J, _A = JobState, AttemptState

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.WAITING: frozenset({_J.LEASED, _J.CANCELLED}),
    _J.LEASED: frozenset({_J.RUNNING, _J.WAITING, _J.FAILED, _J.CANCELLED}),
    _J.RUNNING: frozenset({_J.SUCCEEDED, _J.WAITING, _J.FAILED, _J.CANCELLED}),
    # A person may ask again for what failed or was cancelled; a success is final.
    _J.FAILED: frozenset({_J.WAITING}),
    _J.CANCELLED: frozenset({_J.WAITING}),
    _J.SUCCEEDED: frozenset(),
}

_ENDED = frozenset({_A.FAILED, _A.LOST, _A.VOID, _A.CANCELLED})

ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    _A.PREPARING: _ENDED | {_A.MEASURING},
    _A.MEASURING: _ENDED | {_A.SHAPING, _A.STARTING},  # the latter: there is nothing to shape
    _A.SHAPING: _ENDED | {_A.STARTING},
    _A.STARTING: _ENDED | {_A.RUNNING},
    _A.RUNNING: _ENDED | {_A.SUCCEEDED},
    _A.SUCCEEDED: frozenset(),
    **{state: frozenset() for state in _ENDED},
}

ACTIVE_JOB_STATES = frozenset({_J.LEASED, _J.RUNNING})
FINAL_JOB_STATES = frozenset({_J.SUCCEEDED, _J.FAILED, _J.CANCELLED})
UNSUCCESSFUL_JOB_STATES = (_J.FAILED, _J.CANCELLED)  # such a job may be retried
UNFINISHED_JOB_STATES = tuple(state for state in JobState if state not in FINAL_JOB_STATES)
ACTIVE_ATTEMPT_STATES = frozenset(s for s, onward in ATTEMPT_TRANSITIONS.items() if onward)

_S = TypeVar("_S", JobState, AttemptState)


def move(current: _S, target: _S) -> _S:
    """Return `target` if the table allows it.

    Raises:
        InvalidTransition: it does not.
    """
    table: dict[_S, frozenset[_S]]
    table = JOB_TRANSITIONS if isinstance(current, JobState) else ATTEMPT_TRANSITIONS
    if target not in table[current]:
        allowed = ", ".join(sorted(s.value for s in table[current])) or "nothing: it is final"
        raise InvalidTransition(f"{current.value} leads to {allowed}; not to {target.value}")
    return target


def active_job_count(counts: Mapping[JobState, int]) -> int:
    """Return how many jobs gangs work on, of jobs counted by their states."""
    return sum(counts[state] for state in ACTIVE_JOB_STATES)
