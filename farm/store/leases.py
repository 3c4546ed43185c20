"""Leases: which attempt holds which agents, and until when."""

from __future__ import annotations

import datetime as dt
import logging

from sqlalchemy import column, func, select, table
from sqlalchemy.orm import Session

from farm.core.lifecycle import AttemptState, JobState, RankPhase, move
from farm.core.messages import AgentState
from farm.core.scheduling import Placement
from farm.errors import LeaseConflict
from farm.store.engine import POSTGRESQL
from farm.store.tables import Agent, Attempt, Job, JobEvent, Rank

logger = logging.getLogger(__name__)

_SEQUENCE = f"{Attempt.__tablename__}_id_seq"  # PostgreSQL's, which draws the tokens there
# Beyond this a token is an agent's damaged file, and following it would use up all numbers.
_LAST_TOKEN = 2**62


def follow_tokens(session: Session, highest_token: int) -> None:
    """Make sure that the next token is higher than one that an agent has seen.

    A store that was created anew, or restored from a backup, would hand out tokens that its
    agents have seen before and therefore refuse, and every job would fail until it caught up.
    """
    if highest_token >= _LAST_TOKEN:
        return
    if session.get_bind().dialect.name == POSTGRESQL:
        latest = session.scalar(select(column("last_value")).select_from(table(_SEQUENCE))) or 0
        # Never set back: a number drawn meanwhile by a lease under way would come twice.
        if latest < highest_token:
            session.execute(select(func.setval(_SEQUENCE, highest_token)))
    else:
        counters = table("sqlite_sequence", column("name"), column("seq"))
        row = counters.c.name == Attempt.__tablename__
        known = session.scalar(select(counters.c.seq).where(row))
        latest = known or 0
        if known is None and highest_token > 0:
            values = {"name": Attempt.__tablename__, "seq": highest_token}
            session.execute(counters.insert().values(values))
        elif latest < highest_token:
            session.execute(counters.update().where(row).values(seq=highest_token))
    if latest < highest_token:
        logger.warning("tokens go on from %d: an agent has seen it", highest_token)


def lease_gang(
    session: Session, placement: Placement, *, now: dt.datetime, lease: dt.timedelta
) -> int:
    """Lease every agent of the gang to a new attempt, or none; return its fencing token.

    The caller owns the transaction and rolls it back on the error. The token is the attempt's id.
    It is drawn only after the rows are locked, so for any one agent or job a later lease always
    has a larger token, even when PostgreSQL transactions interleave. An agent that has not yet
    confirmed the end of its last attempt cannot be leased, however idle it looks.

    Raises:
        LeaseConflict: the job no longer waits, or an agent is locked, leased, unclean or drained.
    """
    waiting = select(Job).where(
        Job.id == placement.job_id, Job.state == JobState.WAITING, Job.cancel_requested.is_(False)
    )
    job = session.scalar(waiting.with_for_update(skip_locked=True))
    free = (
        select(Agent)
        .where(
            Agent.id.in_(placement.agent_ids),
            Agent.attempt_id.is_(None),
            Agent.unclean_token.is_(None),
            Agent.is_drained.is_(False),
            Agent.state == AgentState.IDLE,
        )
        .order_by(Agent.id)
    )
    agents = session.scalars(free.with_for_update(skip_locked=True)).all()
    if job is None or len(agents) != len(placement.agent_ids):
        found = "waits" if job else "does not wait any more"
        raise LeaseConflict(
            f"job {placement.job_id} {found}; {len(agents)} of {placement.agent_ids} are free"
        )
    tried = select(func.count()).select_from(Attempt).where(Attempt.job_id == job.id)
    number = 1 + (session.scalar(tried) or 0)
    attempt = Attempt(
        job_id=job.id,
        number=number,
        state=AttemptState.PREPARING,
        state_since=now,
        leased_at=now,
    )
    session.add(attempt)
    session.flush()
    job.state = move(job.state, JobState.LEASED)
    job.attempt_id = attempt.id
    job.attempt_count += 1
    by_id = {agent.id: agent for agent in agents}
    for rank, agent_id in enumerate(placement.agent_ids):
        agent = by_id[agent_id]
        agent.attempt_id, agent.lease_expires_at = attempt.id, now + lease
        agent.lease_boot_id = agent.boot_id
        session.add(
            Rank(
                attempt_id=attempt.id,
                rank=rank,
                agent_id=agent_id,
                phase=RankPhase.LEASED,
                commanded_at=now,
                hardware=agent.facts["hardware"],
            )
        )
    gang = ", ".join(placement.agent_ids)
    session.add(
        JobEvent(
            job_id=job.id,
            attempt_id=attempt.id,
            at=now,
            event="job: leased",
            reason=f"attempt {number} on {gang}",
        )
    )
    return attempt.id
