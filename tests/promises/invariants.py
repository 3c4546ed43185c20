"""What the farm promises, written once: for the model of its protocol and for farms of processes.

Pure functions over plain values. Each returns what contradicts a promise, one line each, and so an
empty list where it is kept. `tests.promises.store_snapshot` reads the values from a store; who
knows an agent's side of the story makes `Service` and `Spooled` values of it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    ACTIVE_JOB_STATES,
    FINAL_JOB_STATES,
    AttemptState,
    JobState,
    RankPhase,
)
from farm.messages.reports import REPORT_NAMES, RankEnded
from tests.promises.protocol_values import (
    AgentValue,
    AttemptValue,
    JobValue,
    MeasurementValue,
    RankValue,
    Service,
    Spooled,
    StoreValue,
)


def store_violations(store: StoreValue, *, lease_s: float, late_s: float) -> list[str]:
    """Say what is wrong with a store at any instant, whatever is under way.

    `late_s`: for how long a lease may have run out before some scheduler has taken it away.
    """
    return [
        *at_most_one_live_attempt(store.jobs, store.attempts),
        *gangs_are_whole(store.jobs, store.attempts, store.ranks, store.agents),
        *leases_are_owned(
            store.attempts, store.ranks, store.agents, lease_s=lease_s, late_s=late_s
        ),
        *one_outcome_each(store.jobs, store.attempts, store.measurements),
    ]


def at_most_one_live_attempt(
    jobs: Iterable[JobValue], attempts: Iterable[AttemptValue]
) -> list[str]:
    """A job has one live attempt while it is leased or running, and else none."""
    found = []
    of_job: dict[int, list[AttemptValue]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda a: a.id):
        of_job[attempt.job_id].append(attempt)
    for job in jobs:
        tried = of_job[job.id]
        live = [a.id for a in tried if a.state in ACTIVE_ATTEMPT_STATES]
        current = [] if job.attempt_id is None else [job.attempt_id]
        if live != current:
            found.append(f"job {job.id} holds attempts {current}, but {live} are live")
        if (job.state in ACTIVE_JOB_STATES) != bool(current):
            found.append(f"job {job.id} is {job.state.value} and holds attempts {current}")
        if [a.number for a in tried] != list(range(1, len(tried) + 1)):
            found.append(f"job {job.id} counts its attempts {[a.number for a in tried]}")
    return found


def gangs_are_whole(
    jobs: Iterable[JobValue],
    attempts: Iterable[AttemptValue],
    ranks: Iterable[RankValue],
    agents: Iterable[AgentValue],
) -> list[str]:
    """A live attempt holds an agent of its own for each rank; one that is over holds none."""
    found = []
    agent_count = {job.id: job.agent_count for job in jobs}
    gangs: dict[int, dict[int, str]] = defaultdict(dict)
    for member in ranks:
        gangs[member.attempt_id][member.rank] = member.agent_id
    held: dict[int, list[str]] = defaultdict(list)
    for agent in agents:
        if agent.attempt_id is not None:
            held[agent.attempt_id].append(agent.id)
    for attempt in attempts:
        gang = gangs[attempt.id]
        if sorted(gang) != list(range(agent_count[attempt.job_id])):
            wanted = agent_count[attempt.job_id]
            found.append(f"attempt {attempt.id} has ranks {sorted(gang)}; its job needs {wanted}")
        if len(set(gang.values())) < len(gang):
            found.append(f"attempt {attempt.id} has an agent twice: {gang}")
        due = sorted(gang.values()) if attempt.state in ACTIVE_ATTEMPT_STATES else []
        has = sorted(held.pop(attempt.id, []))
        if has != due:
            found.append(f"attempt {attempt.id} is {attempt.state.value}: holds {has}, not {due}")
    found += [f"agents {names} are held by no attempt: {token}" for token, names in held.items()]
    return found


def leases_are_owned(
    attempts: Iterable[AttemptValue],
    ranks: Iterable[RankValue],
    agents: Iterable[AgentValue],
    *,
    lease_s: float,
    late_s: float,
) -> list[str]:
    """An agent is leased to a live attempt for at most `lease_s` more, or it is free.

    Whose rank has ended may die: what it had to say is known, and its peers go on.
    """
    found = []
    ended = {(r.attempt_id, r.agent_id) for r in ranks if r.phase is RankPhase.ENDED}
    live = {a.id for a in attempts if a.state in ACTIVE_ATTEMPT_STATES}
    for agent in agents:
        if (agent.attempt_id is None) != (agent.lease_s is None):
            found.append(
                f"agent {agent.id}: attempt {agent.attempt_id}, but lease {agent.lease_s} s"
            )
        if agent.attempt_id is not None and agent.attempt_id not in live:
            found.append(f"agent {agent.id} is leased to {agent.attempt_id}, which is over")
        if agent.lease_s is not None and agent.lease_s > lease_s:
            found.append(f"agent {agent.id} is leased for {agent.lease_s:g} s of {lease_s:g} s")
        is_needed = (agent.attempt_id, agent.id) not in ended
        if agent.lease_s is not None and agent.lease_s < -late_s and is_needed:
            found.append(f"agent {agent.id}: its lease ran out {-agent.lease_s:g} s ago")
        if agent.attempt_id is not None and agent.unclean_token is not None:
            found.append(
                f"agent {agent.id} is leased to {agent.attempt_id} and unclean of"
                f" {agent.unclean_token}"
            )
    return found


def leased_agents_are_free(
    agents: Iterable[AgentValue], *, serving: Mapping[str, int]
) -> list[str]:
    """A leased agent serves the attempt that holds it or nothing yet, and never one before it.

    `serving`: the tokens of those agents of which a rank's processes run.
    """
    return [
        f"agent {agent.id} is leased to {agent.attempt_id} while it serves {serving[agent.id]}"
        for agent in agents
        if agent.attempt_id is not None
        and serving.get(agent.id, agent.attempt_id) != agent.attempt_id
    ]


def who_serves_is_held(agents: Iterable[AgentValue], *, serving: Mapping[str, int]) -> list[str]:
    """Who serves a rank is leased to its attempt, or unclean of it once that is over.

    So nothing that its machine does for it is taken for the work of another.
    """
    return [
        f"agent {agent.id} serves {serving[agent.id]}: leased to {agent.attempt_id}, unclean of"
        f" {agent.unclean_token}"
        for agent in agents
        if agent.id in serving and serving[agent.id] not in (agent.attempt_id, agent.unclean_token)
    ]


def leases_follow_life(
    agents: Iterable[AgentValue], *, silent_s: Mapping[str, float], lease_s: float
) -> list[str]:
    """A lease runs out by itself once its agent cannot say any more that it serves it.

    `silent_s`: for how long that has been so. What was said before may arrive half a lease late,
    counts as life for a lease, and a lease that is given meanwhile lasts another one.
    """
    return [
        f"agent {agent.id} has been silent for {silent_s[agent.id]:g} s of attempt"
        f" {agent.attempt_id} and is leased for {agent.lease_s:g} s more"
        for agent in agents
        if agent.lease_s is not None
        and agent.lease_s > max(0.0, 2.5 * lease_s - silent_s.get(agent.id, 0.0))
    ]


def one_outcome_each(
    jobs: Iterable[JobValue],
    attempts: Iterable[AttemptValue],
    measurements: Iterable[MeasurementValue],
) -> list[str]:
    """A job that is over has its one outcome, and no other has any; none is measured twice.

    A success has one measurement, of its one successful attempt; a configuration that fails has one
    that says so; what was cancelled or given up for its machines has none.
    """
    found = []
    of_job: dict[int, list[AttemptValue]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda a: a.id):
        of_job[attempt.job_id].append(attempt)
    by_job: dict[int, list[MeasurementValue]] = defaultdict(list)
    for measurement in measurements:
        by_job[measurement.job_id].append(measurement)
    for job in jobs:
        tried, rows = of_job[job.id], by_job.pop(job.id, [])
        if len(rows) > 1:
            found.append(f"job {job.id} has measurements {[m.id for m in rows]}")
        if (job.state in FINAL_JOB_STATES) != job.is_finished:
            found.append(f"job {job.id} is {job.state.value}; is finished: {job.is_finished}")
        succeeded = [a.id for a in tried if a.state is AttemptState.SUCCEEDED]
        if len(succeeded) > 1 or (job.state is JobState.SUCCEEDED) != bool(succeeded):
            found.append(f"job {job.id} is {job.state.value}; attempts {succeeded} succeeded")
        due = _due_measurement(job, tried)
        has = [(m.attempt_id, m.status == "ok") for m in rows]
        if len(rows) <= 1 and has != due:
            found.append(f"job {job.id} is {job.state.value}: measured {has}, not {due}")
    found += [f"job {job_id} is not there, but measured" for job_id in by_job]
    return found


def _due_measurement(
    job: JobValue, attempts: Sequence[AttemptValue]
) -> list[tuple[int | None, bool]]:
    """Return (attempt, whether it succeeded) of the measurement that a job should have."""
    if job.state not in (JobState.SUCCEEDED, JobState.FAILED) or not attempts:
        return []
    last = attempts[-1]
    if last.state is AttemptState.SUCCEEDED:
        return [(last.id, True)]
    return [(last.id, False)] if last.state is AttemptState.FAILED else []


def services_are_fenced(services: Iterable[Service]) -> list[str]:
    """An agent serves one token at a time, never one twice, and never a lower one after it."""
    found = []
    of_agent: dict[str, list[Service]] = defaultdict(list)
    for service in services:
        of_agent[service.agent_id].append(service)
    for agent_id, served in of_agent.items():
        served.sort(key=lambda s: (s.begun, s.token))
        for earlier, later in itertools.pairwise(served):
            if later.token <= earlier.token:
                found.append(f"agent {agent_id} served {later.token} after {earlier.token}")
            if earlier.ended is None or earlier.ended > later.begun:
                found.append(f"agent {agent_id} served {earlier.token} and {later.token} at once")
    return found


def nothing_is_lost(
    written: Iterable[Spooled],
    *,
    waiting: Iterable[Spooled],
    stored: Iterable[Spooled],
    lost: Iterable[Spooled] = (),
) -> list[str]:
    """What a spool ever had is in it still, or in the store, and there just once.

    `written`: every report that a spool took. `waiting`: what is in the spools now. `stored`: what
    the store has, counted or kept aside as late. `lost`: what disks were lost with, which may have
    been sent before; the agent may then serve the same rank again, and say the same. A rank's end
    may be told twice, by the life that served it and, where that died just then, by the next one:
    the first to come is its end.
    """
    found = []
    count = Counter(stored)
    written = list(written)
    taken = Counter([*written, *lost])
    here = set(waiting)
    ends = {_rank_of(report) for report in count if report.kind == REPORT_NAMES[RankEnded]}
    for report in written:
        if count[report] == 0 and report not in here and _rank_of(report) not in ends:
            found.append(f"lost: {report}")
    found += [
        f"stored {times} times: {report}"
        for report, times in count.items()
        if times > max(1, taken[report])
    ]
    return found


def _rank_of(report: Spooled) -> tuple[int, int] | None:
    return (report.token, report.rank) if report.kind == REPORT_NAMES[RankEnded] else None


def all_is_done(store: StoreValue) -> list[str]:
    """Say what is left to do once nothing fails any more and enough time has gone by."""
    found = [
        f"job {job.id} is still {job.state.value}"
        for job in store.jobs
        if job.state not in FINAL_JOB_STATES
    ]
    for agent in store.agents:
        if agent.attempt_id is not None:
            found.append(f"agent {agent.id} is still leased to {agent.attempt_id}")
        if agent.unclean_token is not None:
            found.append(f"agent {agent.id} is still unclean of {agent.unclean_token}")
    return found
