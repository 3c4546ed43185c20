"""What a farm has promised, against what there is: pure, and itself tested by planted bugs."""

from __future__ import annotations

from collections.abc import Mapping

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState, JobState
from tests.chaos.evidence import Evidence
from tests.chaos.farm import LEASE_S
from tests.promises.invariants import (
    all_is_done,
    nothing_is_lost,
    services_are_fenced,
    store_violations,
)

LATE_S = 5.0


def violations(evidence: Evidence, *, network_before: str) -> list[str]:
    """Say what contradicts a promise once a sweep is over, one line each."""
    return [
        *store_violations(evidence.store, lease_s=LEASE_S, late_s=LATE_S),
        *all_is_done(evidence.store),
        *every_job_succeeded(evidence),
        *nothing_is_lost(evidence.written, waiting=evidence.waiting, stored=evidence.stored),
        *services_are_fenced(evidence.services),
        *ended_attempts_stay(evidence),
        *measured_by_one(evidence),
        *measured_whole(evidence.step_counts),
        *nothing_is_left(evidence, network_before=network_before),
    ]


def every_job_succeeded(evidence: Evidence) -> list[str]:
    """No job of a campaign has a reason of its own to fail."""
    return [
        f"lost: job {job.id} is {job.state.value}"
        for job in evidence.store.jobs
        if job.state in (JobState.FAILED, JobState.CANCELLED)
    ]


def ended_attempts_stay(evidence: Evidence) -> list[str]:
    """What comes after an attempt's end changes nothing of it."""
    return [
        f"attempt {token} was over when the end of its rank {rank} was stored"
        for token, rank in evidence.changed_late
    ]


def measured_by_one(evidence: Evidence) -> list[str]:
    """All that counts of a rank was told by one agent's one spool."""
    succeeded = {a.id for a in evidence.store.attempts if a.state is AttemptState.SUCCEEDED}
    return [
        f"rank {rank} of attempt {token} was told by {len(spools)} spools"
        for (token, rank), spools in evidence.generations.items()
        if token in succeeded and len(spools) > 1
    ]


def measured_whole(step_counts: Mapping[int, tuple[int | None, int]]) -> list[str]:
    """A measurement counts each of its job's steps once."""
    return [
        f"job {job_id} has {requested} steps, and its measurement counts {counted}"
        for job_id, (counted, requested) in step_counts.items()
        if counted != requested
    ]


def nothing_is_left(evidence: Evidence, *, network_before: str) -> list[str]:
    """No process, file, port or network profile of an attempt outlives it."""
    active = {a.id for a in evidence.store.attempts if a.state in ACTIVE_ATTEMPT_STATES}
    if active:
        return []  # all_is_done has said so
    return [
        *(f"left behind: process {process}" for process in evidence.processes),
        *(f"left behind: file {file}" for file in evidence.files),
        *(f"left behind: {port}" for port in evidence.ports),
        *(
            [f"left behind on the network: {evidence.network}"]
            if evidence.network != network_before
            else []
        ),
    ]
