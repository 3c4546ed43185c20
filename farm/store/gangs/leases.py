"""Leases: which attempt holds which agents, and until when.

Heartbeats renew them, in `farm.store.agents.heartbeats`.

An attempt's id is its fencing token: ids only ever grow.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import ColumnElement, column, func, select, table
from sqlalchemy.orm import Session

from farm.errors import LeaseConflict
from farm.gang.lifecycle import AttemptState, JobState, RankPhase, move
from farm.messages.agents import AgentState
from farm.placement.agent_index import SHARES_CORES
from farm.placement.scheduling import Placement
from farm.store.engine import POSTGRESQL
from farm.store.gangs.attempts import Member, StoredAttempt
from farm.store.tables import AgentRow, AttemptRow, JobEvent, JobRow, RankRow

logger = logging.getLogger(__name__)

_SEQUENCE = f"{AttemptRow.__tablename__}_id_seq"  # PostgreSQL's, which draws the tokens there
_COUNTERS = table("sqlite_sequence", column("name"), column("seq"))  # SQLite's
_OWN_COUNTER = _COUNTERS.c.name == AttemptRow.__tablename__
# Beyond this a token is an agent's damaged file, and following it would use up all numbers.
_LAST_TOKEN = 2**62
# What an agent says may be a lie. So far a single beat moves the tokens: after a loss beyond that
# they need some beats, and no stolen agent can use them up.
_FARTHEST = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """Result of leasing: new attempts, oldest first, and the conflict of each other job."""

    attempts: Sequence[StoredAttempt]
    conflicts: Mapping[int, str]

    @property
    def tokens(self) -> dict[int, int]:
        """By job, its fencing token."""
        return {one.job.id: one.attempt.id for one in self.attempts}


def lease_gangs(
    session: Session, placements: Sequence[Placement], *, now: dt.datetime, lease: dt.timedelta
) -> Leased:
    """Lease every agent of each gang to a new attempt, or none of that gang.

    All gangs are leased together, since a statement costs as much for a dozen gangs as for one. A
    conflict affects only its own placement: the job no longer waits, or an agent is locked, leased,
    unclean or drained, or another one has taken its cores.

    The caller owns the transaction. The token is the attempt's id. It is drawn only after the rows
    are locked, so for any one agent or job a later lease always has a larger token, even when
    PostgreSQL transactions interleave. An agent that has not yet confirmed the end of its last
    attempt cannot be leased, however idle it looks.
    """
    jobs = _waiting_jobs(session, [placement.job_id for placement in placements])
    agent_ids = {agent_id for p in placements for agent_id in p.agent_ids}
    nearby = _Nearby(session, agent_ids, live_since=now - lease)
    gangs: dict[int, list[AgentRow]] = {}
    conflicts: dict[int, str] = {}
    for placement in placements:
        if placement.job_id not in jobs:
            conflicts[placement.job_id] = "expected to be waiting and unlocked, is not any more"
            continue
        try:
            gangs[placement.job_id] = nearby.take(placement.agent_ids)
        except LeaseConflict as conflict:
            conflicts[placement.job_id] = str(conflict)
    attempts = _new_attempts(session, [jobs[job_id] for job_id in gangs], now=now)
    stored = [
        _hand_over(session, jobs[attempt.job_id], attempt, gangs[attempt.job_id], until=now + lease)
        for attempt in sorted(attempts, key=lambda attempt: attempt.id)
    ]
    return Leased(attempts=stored, conflicts=conflicts)


def _hand_over(
    session: Session,
    job: JobRow,
    attempt: AttemptRow,
    gang: Sequence[AgentRow],
    *,
    until: dt.datetime,
) -> StoredAttempt:
    job.state = move(job.state, JobState.LEASED)
    job.attempt_id = attempt.id
    job.attempt_count += 1
    now = attempt.leased_at
    members = []
    for number, agent in enumerate(gang):
        agent.attempt_id, agent.lease_expires_at = attempt.id, until
        agent.lease_boot_id = agent.boot_id
        rank = RankRow(
            attempt_id=attempt.id,
            rank=number,
            agent_id=agent.id,
            phase=RankPhase.LEASED,
            commanded_at=now,
            hardware=agent.facts["hardware"],
        )
        session.add(rank)
        labels = agent.facts["labels"]
        members.append(
            Member(rank=rank, leased_to=attempt.id, lease_expires_at=until, labels=labels)
        )
    reason = f"attempt {attempt.number} on {', '.join(agent.id for agent in gang)}"
    session.add(
        JobEvent(job_id=job.id, attempt_id=attempt.id, at=now, event="job: leased", reason=reason)
    )
    return StoredAttempt(attempt=attempt, job=job, members=members)


def is_any_to_stop(
    session: Session, *, now: dt.datetime, alive_within: dt.timedelta, every: dt.timedelta
) -> bool:
    """Whether `agents_to_stop` would return any; nothing is locked."""
    due = _to_stop(now=now, alive_within=alive_within, every=every)
    return session.scalar(select(AgentRow.id).where(*due).limit(1)) is not None


def agents_to_stop(
    session: Session, *, now: dt.datetime, alive_within: dt.timedelta, every: dt.timedelta
) -> Sequence[tuple[str, int]]:
    """Return (agent id, token) of unclean agents to send a stop command, and record the time.

    Only live agents are returned: commands to a dead one would pile up in its queue, and its first
    heartbeats after a return bring it here again.
    """
    due = _to_stop(now=now, alive_within=alive_within, every=every)
    unclean = select(AgentRow).where(*due).order_by(AgentRow.id).with_for_update(skip_locked=True)
    stops = []
    for agent in session.scalars(unclean):
        agent.stop_sent_at = now
        if agent.unclean_token is not None:
            stops.append((agent.id, agent.unclean_token))
    return stops


def _to_stop(
    *, now: dt.datetime, alive_within: dt.timedelta, every: dt.timedelta
) -> tuple[ColumnElement[bool], ...]:
    return (
        AgentRow.unclean_token.is_not(None),
        AgentRow.heartbeat_at > now - alive_within,
        (AgentRow.stop_sent_at.is_(None)) | (AgentRow.stop_sent_at <= now - every),
    )


def _waiting_jobs(session: Session, job_ids: Collection[int]) -> dict[int, JobRow]:
    """Lock the waiting ones of these jobs that nobody else has locked."""
    waiting = (
        select(JobRow)
        .where(
            JobRow.id.in_(job_ids),
            JobRow.state == JobState.WAITING,
            JobRow.cancel_requested.is_(False),
        )
        .order_by(JobRow.id)
        .with_for_update(skip_locked=True)
    )
    return {job.id: job for job in session.scalars(waiting)}


# A machine, and a core of it by its number or a GPU by its UUID.
_Part: TypeAlias = tuple[str, int | str]


class _Nearby:
    """Agents, and all that share a machine with one of them, locked.

    Neighbours are locked, too: otherwise two schedulers could each lease one of two agents that
    share cores or GPUs. Silent agents that never reported themselves clean occupy none: the machine
    may be another agent's now.
    """

    def __init__(
        self, session: Session, agent_ids: Collection[str], *, live_since: dt.datetime
    ) -> None:
        machines = select(AgentRow.machine_id).where(AgentRow.id.in_(agent_ids))
        nearby = AgentRow.machine_id.in_(machines)
        known = session.execute(select(AgentRow.id, AgentRow.machine_id).where(nearby)).all()
        locked = (
            select(AgentRow).where(nearby).order_by(AgentRow.id).with_for_update(skip_locked=True)
        )
        self._agents = {agent.id: agent for agent in session.scalars(locked)}
        self._locked_elsewhere = Counter(
            machine_id for agent_id, machine_id in known if agent_id not in self._agents
        )
        self._given: set[str] = set()
        self._taken = {
            part
            for agent in self._agents.values()
            if agent.attempt_id is not None
            or (
                agent.unclean_token is not None
                and agent.heartbeat_at is not None
                and agent.heartbeat_at >= live_since
            )
            for part in _cores(agent) | _gpus(agent)
        }

    def take(self, agent_ids: Sequence[str]) -> list[AgentRow]:
        """Take these agents, in that order, for one gang; all of them or none.

        Raises:
            LeaseConflict: one of them is not available.
        """
        gang = [self._agents[agent_id] for agent_id in agent_ids if agent_id in self._agents]
        machine_ids = {agent.machine_id for agent in gang}
        locked = sum(self._locked_elsewhere[machine_id] for machine_id in machine_ids)
        if locked:
            raise LeaseConflict(f"agents {agent_ids}: {locked} beside them are locked")
        free = [agent for agent in gang if _is_free(agent) and agent.id not in self._given]
        if len(free) < len(agent_ids):
            raise LeaseConflict(f"agents {agent_ids}: only {len(free)} of them are free")
        shared: set[_Part] = set()
        own: set[_Part] = set()
        for agent in gang:
            cores, gpus = _cores(agent), _gpus(agent)
            # Those that may share do so within a gang; another attempt's cores stay its own, and
            # GPUs are nobody else's.
            may_share = SHARES_CORES in agent.facts["capabilities"]
            if (cores | gpus) & (self._taken | own) or (cores & shared and not may_share):
                raise LeaseConflict(f"agent {agent.id}: its cores or GPUs are taken by another one")
            (shared if may_share else own).update(cores)
            own |= gpus
        self._taken |= shared | own
        self._given.update(agent_ids)
        return gang


def _cores(agent: AgentRow) -> set[_Part]:
    return {(agent.machine_id, cpu) for cpu in agent.facts["cpus"]}


def _gpus(agent: AgentRow) -> set[_Part]:
    return {(agent.machine_id, gpu) for gpu in agent.facts.get("gpus", ())}


def _is_free(agent: AgentRow) -> bool:
    return (
        agent.attempt_id is None
        and agent.unclean_token is None
        and not agent.is_drained
        and agent.state is AgentState.IDLE
    )


def _new_attempts(
    session: Session, jobs: Sequence[JobRow], *, now: dt.datetime
) -> list[AttemptRow]:
    """Add the next attempt of each of these jobs; return them, in that order, with their ids."""
    tried = (
        select(AttemptRow.job_id, func.count())
        .where(AttemptRow.job_id.in_([job.id for job in jobs]))
        .group_by(AttemptRow.job_id)
    )
    counts = dict(session.execute(tried).all()) if jobs else {}
    attempts = [
        AttemptRow(
            job_id=job.id,
            number=1 + counts.get(job.id, 0),
            state=AttemptState.PREPARING,
            state_since=now,
            leased_at=now,
        )
        for job in jobs
    ]
    session.add_all(attempts)
    session.flush()
    return attempts


def follow_tokens(session: Session, seen_tokens: Iterable[int]) -> None:
    """Make sure that the next token is higher than those that agents have seen.

    A new store that replaces a lost one, or one restored from a backup, would draw tokens that its
    agents have seen before and refuse. Every job would fail until the tokens caught up.
    """
    highest = max((token for token in seen_tokens if token < _LAST_TOKEN), default=0)
    if not highest:
        return
    latest = latest_token(session)
    if highest > latest:
        raise_latest_token(session, min(highest, latest + _FARTHEST))
        logger.warning("tokens go on from %d: an agent has seen %d", latest_token(session), highest)


def latest_token(session: Session) -> int:
    """Return the last token drawn, even if its attempt is gone; on PostgreSQL at least 1."""
    if session.get_bind().dialect.name == POSTGRESQL:
        return session.scalar(select(column("last_value")).select_from(table(_SEQUENCE))) or 0
    return session.scalar(select(_COUNTERS.c.seq).where(_OWN_COUNTER)) or 0


def raise_latest_token(session: Session, token: int) -> bool:
    """Make the next token higher than `token`; False if it is already."""
    # Never set back: a number drawn meanwhile by a lease under way would come twice.
    if latest_token(session) >= token:
        return False
    if session.get_bind().dialect.name == POSTGRESQL:
        session.execute(select(func.setval(_SEQUENCE, token)))
    elif session.scalar(select(_COUNTERS.c.seq).where(_OWN_COUNTER)) is None:
        values = {"name": AttemptRow.__tablename__, "seq": token}
        session.execute(_COUNTERS.insert().values(values))
    else:
        session.execute(_COUNTERS.update().where(_OWN_COUNTER).values(seq=token))
    return True
