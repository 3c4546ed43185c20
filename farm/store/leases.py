"""Leases: which attempt holds which agents, and until when."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.core.agent_index import SHARES_CORES
from farm.core.agents import AgentState
from farm.core.lifecycle import AttemptState, JobState, RankPhase, move
from farm.core.scheduling import Placement
from farm.errors import LeaseConflict
from farm.store.tables import Agent, Attempt, Job, JobEvent, Rank


def lease_gang(
    session: Session, placement: Placement, *, now: dt.datetime, lease: dt.timedelta
) -> int:
    """Lease every agent of the gang to a new attempt, or none; return its fencing token.

    The caller owns the transaction and rolls it back on the error. The token is the attempt's id.
    It is drawn only after the rows are locked, so for any one agent or job a later lease always
    has a larger token, even when PostgreSQL transactions interleave. An agent that has not yet
    confirmed the end of its last attempt cannot be leased, however idle it looks.

    Raises:
        LeaseConflict: the job no longer waits, or an agent is locked, leased, unclean or drained,
            or another one has taken its cores.
    """
    job = _waiting_job(session, placement.job_id)
    gang = _free_agents(session, placement.agent_ids)
    attempt = _new_attempt(session, job, now=now)
    job.state = move(job.state, JobState.LEASED)
    job.attempt_id = attempt.id
    job.attempt_count += 1
    for rank, agent in enumerate(gang):
        agent.attempt_id, agent.lease_expires_at = attempt.id, now + lease
        agent.lease_boot_id = agent.boot_id
        session.add(
            Rank(
                attempt_id=attempt.id,
                rank=rank,
                agent_id=agent.id,
                phase=RankPhase.LEASED,
                commanded_at=now,
                hardware=agent.facts["hardware"],
            )
        )
    names = ", ".join(placement.agent_ids)
    reason = f"attempt {attempt.number} on {names}"
    session.add(
        JobEvent(job_id=job.id, attempt_id=attempt.id, at=now, event="job: leased", reason=reason)
    )
    return attempt.id


def agents_to_stop(
    session: Session, *, now: dt.datetime, alive_within: dt.timedelta, every: dt.timedelta
) -> Sequence[tuple[str, int]]:
    """Return (agent id, token) of unclean agents that should be told to stop, and note the time.

    Only agents that are alive: commands to a dead one would pile up in its queue, and when it
    comes back its first heartbeats bring it here again.
    """
    unclean = (
        select(Agent)
        .where(
            Agent.unclean_token.is_not(None),
            Agent.heartbeat_at > now - alive_within,
            (Agent.stop_sent_at.is_(None)) | (Agent.stop_sent_at <= now - every),
        )
        .order_by(Agent.id)
        .with_for_update(skip_locked=True)
    )
    stops = []
    for agent in session.scalars(unclean):
        agent.stop_sent_at = now
        if agent.unclean_token is not None:
            stops.append((agent.id, agent.unclean_token))
    return stops


def _waiting_job(session: Session, job_id: int) -> Job:
    waiting = select(Job).where(
        Job.id == job_id, Job.state == JobState.WAITING, Job.cancel_requested.is_(False)
    )
    job = session.scalar(waiting.with_for_update(skip_locked=True))
    if job is None:
        raise LeaseConflict(f"job {job_id}: expected to be waiting and unlocked, is not any more")
    return job


def _free_agents(session: Session, agent_ids: Sequence[str]) -> list[Agent]:
    """Lock the gang and all that shares a machine with it; return the gang in order of rank.

    The neighbours are locked too, because who is leased beside whom is decided by cores: two
    schedulers could otherwise each lease one of two agents that share some.
    """
    machines = select(Agent.machine_id).where(Agent.id.in_(agent_ids))
    nearby = select(Agent).where(Agent.machine_id.in_(machines))
    count = session.scalar(select(func.count()).select_from(nearby.subquery())) or 0
    locked = nearby.order_by(Agent.id).with_for_update(skip_locked=True)
    agents = {agent.id: agent for agent in session.scalars(locked)}
    if len(agents) < count:
        raise LeaseConflict(f"agents {agent_ids}: {count - len(agents)} beside them are locked")
    gang = [agents[agent_id] for agent_id in agent_ids if agent_id in agents]
    free = [agent for agent in gang if _is_free(agent)]
    if len(free) < len(agent_ids):
        raise LeaseConflict(f"agents {agent_ids}: only {len(free)} of them are free")
    taken = {
        (agent.machine_id, cpu)
        for agent in agents.values()
        if agent.attempt_id is not None or agent.unclean_token is not None
        for cpu in agent.facts["cpus"]
    }
    shared: set[tuple[str, int]] = set()
    for agent in gang:
        cores = {(agent.machine_id, cpu) for cpu in agent.facts["cpus"]}
        # Those that may share do so within a gang; another attempt's cores stay its own.
        may_share = SHARES_CORES in agent.facts["capabilities"]
        if cores & (taken if may_share else taken | shared):
            raise LeaseConflict(f"agent {agent.id}: its cores are taken by another one")
        if may_share:
            shared |= cores
        else:
            taken |= cores
    return gang


def _is_free(agent: Agent) -> bool:
    return (
        agent.attempt_id is None
        and agent.unclean_token is None
        and not agent.is_drained
        and agent.state is AgentState.IDLE
    )


def _new_attempt(session: Session, job: Job, *, now: dt.datetime) -> Attempt:
    tried = select(func.count()).select_from(Attempt).where(Attempt.job_id == job.id)
    attempt = Attempt(
        job_id=job.id,
        number=1 + (session.scalar(tried) or 0),
        state=AttemptState.PREPARING,
        state_since=now,
        leased_at=now,
    )
    session.add(attempt)
    session.flush()
    return attempt
