"""Stores heartbeats, and renews the leases of agents that are alive."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from farm.gang.admission import beat_age_s, is_clean, renews_lease
from farm.gang.lifecycle import RankPhase
from farm.messages.agents import AgentState, Heartbeat
from farm.store.gangs.leases import follow_tokens
from farm.store.tables import AgentRow, RankRow
from farm.values.codec import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatEffect:
    """The effect of a heartbeat. `is_newly_free`: wake the scheduler."""

    is_stale: bool = False
    is_newly_free: bool = False


def record_heartbeats(
    session: Session, beats: Sequence[Heartbeat], *, now: dt.datetime, lease: dt.timedelta
) -> list[BeatEffect]:
    """Store heartbeats in their order. The caller owns the transaction.

    An agent counts as alive, and its lease is renewed, only by a beat that proves its freshness and
    is newer than the last of its boot. After half a lease an agent gives up by itself, so an older
    beat proves nothing.
    """
    locked = (
        select(AgentRow)
        .where(AgentRow.id.in_({beat.agent_id for beat in beats}))
        .order_by(AgentRow.id)
        .with_for_update()
    )
    agents = {agent.id: agent for agent in session.scalars(locked)}
    past_barrier = _agents_past_barrier(session, agents, beats)
    seen_tokens = []
    effects = []
    for beat in beats:
        age_s = beat_age_s(beat.echo, now_s=now.timestamp())
        is_fresh = age_s is not None and age_s <= lease.total_seconds() / 2
        agent = agents.get(beat.agent_id)
        was_free = agent is not None and _is_ready(agent)
        if agent is None:
            agent = agents[beat.agent_id] = _new_agent(beat, now=now)
            session.add(agent)
        elif _is_overtaken(agent, beat, is_fresh=is_fresh):
            effects.append(BeatEffect(is_stale=True))
            continue
        _note(agent, beat, now=now)
        if is_fresh:
            agent.heartbeat_at = now
            seen_tokens.append(beat.highest_token)
            _renew_lease(agent, beat, has_reported=agent.id in past_barrier, now=now, lease=lease)
        effects.append(BeatEffect(is_newly_free=_is_ready(agent) and not was_free))
    if seen_tokens:
        follow_tokens(session, seen_tokens)
    return effects


def _new_agent(beat: Heartbeat, *, now: dt.datetime) -> AgentRow:
    return AgentRow(
        id=beat.agent_id,
        first_seen_at=now,
        boot_id=beat.boot_id,
        beat_counter=0,
        is_drained=False,
        heartbeat_at=None,
        attempt_id=None,
        unclean_token=None,
    )


def _is_overtaken(agent: AgentRow, beat: Heartbeat, *, is_fresh: bool) -> bool:
    if agent.is_removed:
        return True
    if agent.boot_id == beat.boot_id:
        return beat.counter <= agent.beat_counter
    # Either a fresh start, which the next beat will prove, or an old boot's echo from a
    # backlog; taking it over would let the dead replace the living.
    return not is_fresh and agent.heartbeat_at is not None


def _note(agent: AgentRow, beat: Heartbeat, *, now: dt.datetime) -> None:
    """Store an agent's own report."""
    agent.boot_id, agent.beat_counter, agent.state = beat.boot_id, beat.counter, beat.state
    agent.clock_offset_s = beat.agent_time_s - now.timestamp()
    agent.machine_id = beat.facts.machine_id
    facts = to_json(beat.facts)
    assert isinstance(facts, dict)
    if agent.facts != facts:
        agent.facts, agent.fingerprint = facts, beat.facts.hardware.fingerprint
    agent.template_bytes, agent.disk_free_bytes = beat.template_bytes, beat.disk_free_bytes
    backlog = beat.backlog
    agent.backlog_count = backlog.report_count if backlog else None
    agent.backlog_bytes = backlog.byte_count if backlog else None
    agent.report_lag_s = backlog.oldest_s if backlog else None


def _renew_lease(
    agent: AgentRow, beat: Heartbeat, *, has_reported: bool, now: dt.datetime, lease: dt.timedelta
) -> None:
    """Extend the agent's lease by a fresh beat, and mark it clean if the beat says so."""
    if agent.unclean_token is not None and is_clean(beat, unclean_token=agent.unclean_token):
        agent.unclean_token = agent.stop_sent_at = None
    if agent.attempt_id is None:
        return
    if beat.highest_token < agent.attempt_id and not has_reported:
        agent.lease_boot_id = beat.boot_id
    if renews_lease(
        beat,
        token=agent.attempt_id,
        same_boot=agent.lease_boot_id == beat.boot_id,
        has_reported=has_reported,
    ):
        agent.lease_expires_at = now + lease


def _agents_past_barrier(
    session: Session, agents: Mapping[str, AgentRow], beats: Iterable[Heartbeat]
) -> set[str]:
    """Return the agents that have not heard of their lease, but whose rank has passed a barrier."""
    awaiting = [
        (agent.attempt_id, agent.id)
        for beat in beats
        if (agent := agents.get(beat.agent_id)) is not None
        and agent.attempt_id is not None
        and beat.highest_token < agent.attempt_id
    ]
    if not awaiting:
        return set()
    query = select(RankRow.agent_id).where(
        tuple_(RankRow.attempt_id, RankRow.agent_id).in_(awaiting),
        RankRow.phase != RankPhase.LEASED,
    )
    return set(session.scalars(query))


def _is_ready(agent: AgentRow) -> bool:
    return (
        agent.state is AgentState.IDLE
        and agent.attempt_id is None
        and agent.unclean_token is None
        and agent.heartbeat_at is not None
    )
