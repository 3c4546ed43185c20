"""How far sweeps are, and why jobs wait: the pure answers of `farm.core`, fed from the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from farm.config import Settings
from farm.core.lifecycle import JobState, SweepState
from farm.core.progress import remaining_s
from farm.core.scheduling import explain
from farm.core.views import LiveAgent
from farm.store.agents import live_agents
from farm.store.dashboard import unfinished_jobs
from farm.store.jobs import waiting_jobs
from farm.store.sweeps import SweepSummary, finished_durations
from farm.store.tables import Job

# Jobs further back wait for those before them, whatever else would be said of them.
_EXPLAINED_COUNT = 1000


def sweep_remaining_s(
    session: Session, summary: SweepSummary, *, now: dt.datetime, agent_count: int
) -> float | None:
    """Estimate the time until the sweep is over; None as long as there is nothing to go by."""
    if summary.state is SweepState.FINISHED:
        return 0.0
    finished = finished_durations(session, summary.sweep_id)
    unfinished = unfinished_jobs(session, summary.sweep_id, now=now)
    return remaining_s(finished, unfinished, agent_count=agent_count)


def waiting_reasons(
    session: Session, settings: Settings, agents: Sequence[LiveAgent], *, now: dt.datetime
) -> Mapping[int, str]:
    """Say why jobs wait, in the order in which they would be placed.

    A job that the scheduler would place right now is there too: it is about to be.
    """
    jobs = waiting_jobs(session, now=now, limit=_EXPLAINED_COUNT)
    reasons = explain(jobs, agents, reserve_after_s=settings.reserve_after_s)
    return {job.job_id: reasons.get(job.job_id, "about to start") for job in jobs}


def waiting_reason(
    session: Session, job: Job, settings: Settings, *, now: dt.datetime
) -> str | None:
    """Say why a job waits; None where it does not."""
    if job.state is not JobState.WAITING:
        return None
    if job.due_at > now:
        return f"pauses {(job.due_at - now).total_seconds():.0f} s before its next attempt"
    agents = live_agents(session, now=now, live_within_s=settings.lease_s)
    reasons = waiting_reasons(session, settings, agents, now=now)
    return reasons.get(job.id, "others are before it in the queue")
