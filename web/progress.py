"""How far sweeps are, and why jobs wait: the pure answers of `farm.core`, fed from the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from farm.config import Settings
from farm.core.lifecycle import JobState, SweepState
from farm.core.progress import QueueOutlook, SweepLoad, queue_outlook, remaining_s
from farm.core.scheduling import explain
from farm.core.views import LiveAgent
from farm.store.agents import live_agents
from farm.store.jobs import waiting_jobs
from farm.store.sweep_loads import latest_paces, sweep_loads
from farm.store.sweeps import SweepSummary
from farm.store.tables import Job, Sweep

# Jobs further back wait for those before them, whatever else would be said of them.
_EXPLAINED_COUNT = 1000


@dataclass(frozen=True, slots=True)
class SweepCard:
    """A sweep of a list. `remaining_s` None: nothing to go by."""

    summary: SweepSummary
    remaining_s: float | None


def sweep_remaining_s(
    session: Session, summary: SweepSummary, *, now: dt.datetime, agent_count: int
) -> float | None:
    """Estimate the time until the sweep is over; None as long as there is nothing to go by."""
    if summary.state is SweepState.FINISHED:
        return 0.0
    loads = sweep_loads(session, now=now, sweep_ids=[summary.sweep_id])
    return _load_remaining_s(loads.get(summary.sweep_id), agent_count=agent_count)


def sweep_cards(
    summaries: Sequence[SweepSummary], loads: Mapping[int, SweepLoad], *, agent_count: int
) -> list[SweepCard]:
    """Return sweeps as lists show them; `loads`: of all of them that are not over."""
    return [
        SweepCard(s, _load_remaining_s(loads.get(s.sweep_id), agent_count=agent_count))
        for s in summaries
    ]


def outlook(session: Session, loads: Mapping[int, SweepLoad], *, agent_count: int) -> QueueOutlook:
    """Estimate when all that is under way or waits will be over; `loads`: of all sweeps."""
    is_told = all(load.paces for load in loads.values())
    elsewhere = () if is_told else latest_paces(session)
    return queue_outlook(loads.values(), elsewhere, agent_count=agent_count)


def waiting_reasons(
    session: Session,
    settings: Settings,
    agents: Sequence[LiveAgent],
    *,
    now: dt.datetime,
    limit: int = _EXPLAINED_COUNT,
) -> Mapping[int, str]:
    """Say why the first jobs of the queue wait, in the order in which they would be placed.

    A job that the scheduler would place right now is there too: it is about to be. What is said
    of one rests on those before it alone, so `limit` changes nothing of what is said.
    """
    jobs = waiting_jobs(session, now=now, limit=limit)
    reasons = explain(jobs, agents, reserve_after_s=settings.reserve_after_s)
    return {job.job_id: reasons.get(job.job_id, "about to start") for job in jobs}


def waiting_reason(
    session: Session, job: Job, settings: Settings, *, now: dt.datetime
) -> str | None:
    """Say why a job waits; None where it does not."""
    if job.state is not JobState.WAITING:
        return None
    if session.get_one(Sweep, job.sweep_id).is_paused:
        return "its sweep is paused"
    if job.due_at > now:
        return f"pauses {(job.due_at - now).total_seconds():.0f} s before its next attempt"
    agents = live_agents(session, now=now, live_within_s=settings.lease_s)
    reasons = waiting_reasons(session, settings, agents, now=now)
    return reasons.get(job.id, "others are before it in the queue")


def _load_remaining_s(load: SweepLoad | None, *, agent_count: int) -> float | None:
    """Estimate the time that is left of a sweep; of one that is paused, without its pause."""
    if load is None:
        return 0.0
    return remaining_s(load.paces, load.unfinished, agent_count=agent_count)
