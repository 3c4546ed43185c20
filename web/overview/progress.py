"""Estimates how long sweeps still take, and says why jobs wait, for pages and the API."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.broker.health_records import find_idle_reason
from farm.gang.lifecycle import JobState, SweepState
from farm.gang.snapshots import LiveAgent
from farm.placement.progress import JobPace, QueueEstimate, SweepLoad, estimate_queue, remaining_s
from farm.store.agents.agents import live_agents
from farm.store.engine import reading
from farm.store.queue.waiting import waiting_count
from farm.store.queue.waiting_reasons import IS_BEHIND, WaitingReason, waiting_reasons
from farm.store.sweeps.sweep_loads import latest_paces, paces, sweep_loads
from farm.store.sweeps.sweeps import SweepSummary
from farm.store.tables import JobRow
from web.backend import backend

# Of a queue that is not longer than that, reasons are read for each answer.
_READ_AT_ONCE = 500
# A mean over n jobs is 1/n of the next one off, so that of many may be read less often.
_PACE_GOOD_S_A_JOB, _MOST_PACE_GOOD_S = 0.02, 10.0
# Many viewers ask at once, also as long as no job has finished.
LEAST_PACE_GOOD_S = 0.5
_IDLE_GOOD_S = 2.0


@dataclass(frozen=True, slots=True)
class SweepCard:
    """A sweep of a list. `remaining_s` None: nothing to go by.

    `missing_agents`: what it lacks, where the live agents could serve nothing that is left of it.
    """

    summary: SweepSummary
    remaining_s: float | None
    missing_agents: str | None = None


def loads_of(
    session: Session, *, now: dt.datetime, sweep_ids: Collection[int] | None = None
) -> dict[int, SweepLoad]:
    """Return what is left of these sweeps, or of all; how fast their jobs go may be seconds old."""
    return sweep_loads(session, now=now, sweep_ids=sweep_ids, read_paces=_read_paces)


def sweep_remaining_s(
    session: Session, summary: SweepSummary, *, now: dt.datetime, agent_count: int
) -> float | None:
    """Estimate the time until the sweep is over; None as long as there is nothing to go by."""
    if summary.state is SweepState.FINISHED:
        return 0.0
    loads = loads_of(session, now=now, sweep_ids=[summary.sweep_id])
    return _load_remaining_s(loads.get(summary.sweep_id), agent_count=agent_count)


def sweep_cards(
    summaries: Sequence[SweepSummary],
    loads: Mapping[int, SweepLoad],
    *,
    agent_count: int,
    missing_agents: Mapping[int, str],
) -> list[SweepCard]:
    """Return sweeps as lists show them; `loads`: of all of them that are not over."""
    return [
        SweepCard(
            s,
            _load_remaining_s(loads.get(s.sweep_id), agent_count=agent_count),
            missing_agents.get(s.sweep_id),
        )
        for s in summaries
    ]


def queue_estimate(
    session: Session, loads: Mapping[int, SweepLoad], *, agent_count: int
) -> QueueEstimate:
    """Estimate when all that is under way or waits will be over; `loads`: of all sweeps."""
    is_told = all(load.paces for load in loads.values())
    elsewhere = () if is_told else _read_latest_paces(session)
    return estimate_queue(loads.values(), elsewhere, agent_count=agent_count)


def cached_waiting_reasons(
    session: Session, *, now: dt.datetime, agents: Collection[LiveAgent] | None = None
) -> Mapping[int, WaitingReason]:
    """Say of every job that waits why, the first in the queue first.

    `agents`: those alive, where the caller has read them. A job that the scheduler would place
    right now is there too: it is about to be. Of a long queue the answer may be seconds old.
    """
    settings, engine, queues = backend().settings, backend().engine, backend().queues
    look = functools.partial(find_idle_reason, settings.broker_url)

    def idle_reason() -> str | None:
        return queues.for_a_while("scheduler", look, keep_s=_IDLE_GOOD_S, renew=look)

    def read(
        session: Session, agents: Collection[LiveAgent] | None = None
    ) -> Mapping[int, WaitingReason]:
        if agents is None:
            agents = live_agents(session, now=now, live_within_s=settings.lease_s)
        return waiting_reasons(
            session,
            now=now,
            agents=agents,
            reserve_after_s=settings.reserve_after_s,
            policy=settings.retry_policy,
            idle_reason=idle_reason,
        )

    def renew() -> Mapping[int, WaitingReason]:
        with reading(engine) as other:
            return read(other)

    if waiting_count(session) <= _READ_AT_ONCE:
        return read(session, agents)
    return queues.for_a_while(
        "reasons", lambda: read(session, agents), keep_s=LEAST_PACE_GOOD_S, renew=renew
    )


def why_job_waits(session: Session, job: JobRow, *, now: dt.datetime) -> str | None:
    """Say why a job waits, as `cached_waiting_reasons` does; None where it does not."""
    if job.state is not JobState.WAITING:
        return None
    reason = cached_waiting_reasons(session, now=now).get(job.id)
    return IS_BEHIND if reason is None else reason.text


def _read_paces(session: Session, sweep_ids: Collection[int]) -> Mapping[int, tuple[JobPace, ...]]:
    key = tuple(sorted(sweep_ids))
    engine = backend().engine

    def renew() -> Mapping[int, tuple[JobPace, ...]]:
        with reading(engine) as other:
            return paces(other, key)

    def good_s(found: Mapping[int, tuple[JobPace, ...]]) -> float:
        return _good_s([pace for of_sweep in found.values() for pace in of_sweep])

    return backend().paces.for_a_while(key, lambda: paces(session, key), keep_s=good_s, renew=renew)


def _read_latest_paces(session: Session) -> tuple[JobPace, ...]:
    engine = backend().engine

    def renew() -> tuple[JobPace, ...]:
        with reading(engine) as other:
            return latest_paces(other)

    return backend().paces.for_a_while(
        "latest", lambda: latest_paces(session), keep_s=_good_s, renew=renew
    )


def _good_s(found: Sequence[JobPace]) -> float:
    """Return how long these may be shown."""
    job_count = sum(pace.job_count for pace in found)
    return max(LEAST_PACE_GOOD_S, min(_MOST_PACE_GOOD_S, _PACE_GOOD_S_A_JOB * job_count))


def _load_remaining_s(load: SweepLoad | None, *, agent_count: int) -> float | None:
    """Estimate the time that is left of a sweep; of one that is held, once it goes on."""
    if load is None:
        return 0.0
    return remaining_s(load.paces, load.unfinished, agent_count=agent_count)
