"""Agents as people and the scheduler see them, and the ranks that each has served.

The modules `heartbeats` and `leases` write all other columns.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Text, case, cast, func, or_, select
from sqlalchemy.orm import Session

from farm.configuration.spec import TENSORFLOW, TORCH_VERSION
from farm.errors import NotFound
from farm.gang.lifecycle import AttemptState
from farm.gang.snapshots import LiveAgent
from farm.messages.agents import AgentState
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow, SpoolPosition, SweepRow

# From one look of the scheduler to the next, hardly any of a thousand agents have changed.
_MOST_KEPT = 4096
_COLUMNS = (
    AgentRow.id,
    AgentRow.machine_id,
    AgentRow.fingerprint,
    AgentRow.state,
    AgentRow.is_drained,
    AgentRow.attempt_id,
    AgentRow.unclean_token,
    cast(AgentRow.facts, Text).label("facts_text"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SchedulingFacts:
    """The facts of an agent that determine which jobs it can do, see `LiveAgent`."""

    cpus: frozenset[int]
    gpus: frozenset[str]
    capabilities: frozenset[str]
    labels: frozenset[tuple[str, str]]
    memory_bytes: int | None
    framework_version: str | None
    has_tensorflow: bool


def list_agents(
    session: Session, *, after_id: str | None = None, limit: int | None = 1000
) -> Sequence[AgentRow]:
    """Return all agents ever seen, by id; `after_id` continues after a page's last.

    `limit` None: all.
    """
    query = select(AgentRow).order_by(AgentRow.id).limit(limit)
    if after_id is not None:
        query = query.where(AgentRow.id > after_id)
    return session.scalars(query).all()


def live_agents(
    session: Session,
    *,
    now: dt.datetime,
    live_within_s: float,
    known: Sequence[AgentRow] = (),
    are_all_known: bool = False,
) -> list[LiveAgent]:
    """Return the agents whose last fresh heartbeat is that recent, by id.

    `known`: agents that this transaction has read already, and that are not read again; with
    `are_all_known` there are no others.

    A silent agent with a lease is included until the lease ends, since its cores are not free yet.
    A silent agent that is only unclean is not included: its machine may never come back, and the
    agent in its place must be able to work.
    """
    fresh_since = now - dt.timedelta(seconds=live_within_s)
    live = [
        _live(agent, _abilities(agent.facts))
        for agent in known
        if agent.attempt_id is not None
        or (agent.heartbeat_at is not None and agent.heartbeat_at >= fresh_since)
    ]
    if not are_all_known:
        query = select(*_COLUMNS).where(_is_live(fresh_since))
        rows = session.execute(query.where(AgentRow.id.not_in([a.id for a in known])))
        live += map(_live_of_row, rows)
    return sorted(live, key=lambda agent: agent.agent_id)


def is_any_idle(session: Session, *, now: dt.datetime, live_within_s: float) -> bool:
    """Whether any of `live_agents` accepts ranks; a fast check, since mostly all are busy."""
    idle = (
        select(AgentRow.id)
        .where(
            AgentRow.heartbeat_at >= now - dt.timedelta(seconds=live_within_s),
            AgentRow.state == AgentState.IDLE,
            AgentRow.is_drained.is_(False),
            AgentRow.attempt_id.is_(None),
            AgentRow.unclean_token.is_(None),
        )
        .limit(1)
    )
    return session.scalar(idle) is not None


def live_agent_count(session: Session, *, now: dt.datetime, live_within_s: float) -> int:
    """Count the agents that `live_agents` returns, without reading their facts."""
    is_live = _is_live(now - dt.timedelta(seconds=live_within_s))
    return session.scalar(select(func.count()).select_from(AgentRow).where(is_live)) or 0


def set_drained(session: Session, agent_id: str, *, is_drained: bool) -> None:
    """Drain an agent, so it finishes its rank and takes no other, or undo that.

    Raises:
        NotFound: there is no such agent.
    """
    find_agent(session, agent_id, for_update=True).is_drained = is_drained
    session.flush()


def _is_live(fresh_since: dt.datetime) -> ColumnElement[bool]:
    return or_(AgentRow.heartbeat_at >= fresh_since, AgentRow.attempt_id.is_not(None))


def _live(agent: AgentRow | Row[*tuple[Any, ...]], able: _SchedulingFacts) -> LiveAgent:
    is_occupying = agent.attempt_id is not None or agent.unclean_token is not None
    takes_ranks = agent.state is AgentState.IDLE and not agent.is_drained
    return LiveAgent(
        agent_id=agent.id,
        machine_id=agent.machine_id,
        cpus=able.cpus,
        gpus=able.gpus,
        capabilities=able.capabilities,
        labels=able.labels,
        fingerprint=agent.fingerprint,
        memory_bytes=able.memory_bytes,
        framework_version=able.framework_version,
        has_tensorflow=able.has_tensorflow,
        is_idle=takes_ranks and not is_occupying,
        is_occupying=is_occupying,
    )


def _abilities(facts: Mapping[str, Any]) -> _SchedulingFacts:
    hardware = facts["hardware"]
    return _SchedulingFacts(
        cpus=frozenset(facts["cpus"]),
        gpus=frozenset(facts.get("gpus", ())),
        capabilities=frozenset(facts["capabilities"]),
        labels=frozenset(facts["labels"].items()),
        memory_bytes=None if hardware.get("accelerators") else hardware.get("memory_bytes"),
        framework_version=hardware["tensorflow_version"],
        has_tensorflow=has_tensorflow(facts),
    )


def frameworks_text(facts: Mapping[str, Any]) -> str:
    """Name the frameworks that an agent has, with their versions; empty: none."""
    version = facts["hardware"]["tensorflow_version"]
    found = [f"TensorFlow {version or ''}".strip()] if has_tensorflow(facts) else []
    torch = (
        name.removeprefix(TORCH_VERSION)
        for name in facts["capabilities"]
        if name.startswith(TORCH_VERSION)
    )
    return ", ".join([*found, *(f"PyTorch {version}" for version in torch)])


def has_tensorflow(facts: Mapping[str, Any]) -> bool:
    """Whether the trainers of an agent with these facts have TensorFlow."""
    return TENSORFLOW in facts["capabilities"]


@functools.lru_cache(maxsize=_MOST_KEPT)
def _live_of_row(row: Row[*tuple[Any, ...]]) -> LiveAgent:
    """Return the agent of a row of `_COLUMNS`; of an equal one the same."""
    return _live(row, _abilities_of_text(row.facts_text))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _abilities_of_text(facts: str) -> _SchedulingFacts:
    return _abilities(json.loads(facts))


class AgentOrder(enum.Enum):
    """The order of agents; by name among equals."""

    NAME = "name"
    WORK = "work"  # those that are leased, by their attempts
    HEARTBEAT = "heartbeat"  # those that are silent for longest
    CLOCK = "clock"  # those whose clocks are most off


def agent_page(
    session: Session,
    order: AgentOrder,
    *,
    live_since: dt.datetime,
    offset: int = 0,
    limit: int,
) -> Sequence[AgentRow]:
    """Return agents in an order. Those without a heartbeat since then come last.

    But for that of heartbeats, where they are what one looks for.
    """
    is_silent = case((AgentRow.heartbeat_at >= live_since, 0), else_=1)
    first: dict[AgentOrder, tuple[ColumnElement[Any], ...]] = {
        AgentOrder.NAME: (is_silent,),
        AgentOrder.WORK: (is_silent, AgentRow.attempt_id.nulls_last()),
        AgentOrder.HEARTBEAT: (AgentRow.heartbeat_at.nulls_first(),),
        AgentOrder.CLOCK: (is_silent, func.abs(AgentRow.clock_offset_s).desc().nulls_last()),
    }
    query = select(AgentRow).order_by(*first[order], AgentRow.id).offset(offset).limit(limit)
    return session.scalars(query).all()


def agent_count(session: Session) -> int:
    """Count the agents, those long gone too."""
    return session.scalar(select(func.count()).select_from(AgentRow)) or 0


def find_agent(session: Session, agent_id: str, *, for_update: bool = False) -> AgentRow:
    """Return one agent, locked if it will be changed.

    Raises:
        NotFound: there is no such agent.
    """
    agent = session.get(AgentRow, agent_id, with_for_update=for_update)
    if agent is None:
        raise NotFound(f"agent {agent_id!r} does not exist; `farm agents` lists them")
    return agent


def agents_of_machine(session: Session, machine_id: str, *, limit: int) -> Sequence[str]:
    """Return the ids of the agents on a machine."""
    query = (
        select(AgentRow.id)
        .where(AgentRow.machine_id == machine_id)
        .order_by(AgentRow.id)
        .limit(limit)
    )
    return session.scalars(query).all()


def ranks_of(
    session: Session, agent_id: str, *, before_token: int | None = None, limit: int
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the ranks an agent served, the latest first; `before_token` continues after a page.

    With the job and the attempt that each was of; `own_failure`: the kind of failure that this very
    rank ended with.
    """
    query = (
        select(
            RankRow.attempt_id.label("token"),
            AttemptRow.number.label("attempt_number"),
            JobRow.id.label("job_id"),
            JobRow.sweep_id,
            SweepRow.name.label("sweep_name"),
            JobRow.model,
            JobRow.dataset,
            JobRow.strategy,
            JobRow.agent_count,
            JobRow.global_batch_size,
            RankRow.rank,
            AttemptRow.state,
            AttemptRow.leased_at,
            AttemptRow.ended_at,
            AttemptRow.reason,
            # Read in the database: beside it stands the last part of the trainer's log.
            RankRow.ended["failure", "kind"].as_string().label("own_failure"),
            RankRow.disturbed_by,
            RankRow.control_s,
        )
        .join(AttemptRow, AttemptRow.id == RankRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .join(SweepRow, SweepRow.id == JobRow.sweep_id)
        .where(RankRow.agent_id == agent_id)
        .order_by(RankRow.attempt_id.desc(), RankRow.rank)
        .limit(limit)
    )
    if before_token is not None:
        query = query.where(RankRow.attempt_id < before_token)
    return session.execute(query).all()


def attempt_state_counts(session: Session, agent_id: str, *, limit: int) -> dict[AttemptState, int]:
    """Count the last attempts of an agent by state; those under way are among them."""
    last = (
        select(RankRow.attempt_id)
        .where(RankRow.agent_id == agent_id)
        .order_by(RankRow.attempt_id.desc())
        .limit(limit)
        .subquery()
    )
    rows = session.execute(
        select(AttemptRow.state, func.count())
        .join(last, last.c.attempt_id == AttemptRow.id)
        .group_by(AttemptRow.state)
    )
    found = {state: count for state, count in rows}
    return {state: found[state] for state in AttemptState if state in found}


def spool_position(session: Session, agent_id: str) -> SpoolPosition | None:
    """Return how far the agent's present spool is stored; None: it has no reports."""
    return session.scalar(
        select(SpoolPosition)
        .where(SpoolPosition.agent_id == agent_id)
        .order_by(SpoolPosition.updated_at.desc())
        .limit(1)
    )
