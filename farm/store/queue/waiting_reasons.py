"""Says why each job waits, for commands, pages and the API. Reads only."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import JobState, active_job_count
from farm.gang.retries import DEFAULT_POLICY, RetryPolicy, is_pausing
from farm.gang.snapshots import LiveAgent
from farm.placement.fair_share import TurnGroup, choose_by_turns
from farm.placement.scheduling import UnschedulableReasons, explain
from farm.store.gangs.lengths import gangs_at_work
from farm.store.queue.waiting import (
    IS_WAITING,
    MOST_LOOKED_AT,
    Kinds,
    QueuedJob,
    queue_rows_in_order,
    queued_job,
    with_history,
)
from farm.store.sweeps.budgets import IS_HELD
from farm.store.sweeps.sweeps import SweepSummary
from farm.store.tables import SweepRow
from farm.text.display import machine_hours

WAITS_FOR_AGENTS = "waits for agents"  # in place of a sweep's status, see `missing_agents`
_MOST_REASONS = 2
ABOUT_TO_START = "about to start"
IS_PAUSING = "pauses before its next attempt"
IS_BEHIND = "others that ask for the same agents are before it in the queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReason:
    """Why one job waits. `is_unschedulable`: the live agents could not serve it if all were idle.

    `is_held`: it would not be placed now whatever agents there were.
    """

    sweep_id: int
    text: str
    is_unschedulable: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonGroup:
    """Jobs of one sweep that wait for the same reason; `job_id` is the first in the queue."""

    sweep_id: int
    job_id: int
    job_count: int
    reason: str


def waiting_reasons(
    session: Session,
    *,
    now: dt.datetime,
    agents: Collection[LiveAgent],
    reserve_after_s: float,
    policy: RetryPolicy = DEFAULT_POLICY,
    idle_reason: Callable[[], str | None],
) -> dict[int, WaitingReason]:
    """Return the reason of every waiting job, in the order of the queue.

    `idle_reason`: says why the scheduler is idle, None where it works. It is called only if a job
    could start, which then waits for the scheduler.
    """
    held = _held_reasons(session)
    kinds = Kinds()
    unschedulable = UnschedulableReasons(agents)
    found: dict[int, WaitingReason] = {}
    queue: list[QueuedJob] = []
    counts: Counter[TurnGroup] = Counter()
    for row in queue_rows_in_order(session, IS_WAITING):
        held_reason = held.get(row.sweep_id)
        if held_reason is None and is_pausing(
            row.due_at, now=now, attempt_count=row.attempt_count, policy=policy
        ):
            held_reason = IS_PAUSING
        if held_reason is not None:
            found[row.id] = WaitingReason(sweep_id=row.sweep_id, text=held_reason, is_held=True)
            continue
        kind = kinds.of(row)
        if (reason := unschedulable.of(kind)) is not None:
            found[row.id] = WaitingReason(sweep_id=row.sweep_id, text=reason, is_unschedulable=True)
            continue
        found[row.id] = WaitingReason(sweep_id=row.sweep_id, text=IS_BEHIND)
        one = queued_job(row, kinds, now=now, expected_s={})
        if counts[one.group] < MOST_LOOKED_AT:
            counts[one.group] += 1
            queue.append(one)
    looked_at = choose_by_turns(queue, most=MOST_LOOKED_AT, group_of=lambda one: one.group)
    # Who has measured a cell before decides which of equal agents is taken, and not whether any.
    jobs = with_history(session, looked_at, spread_count=0)
    gangs = gangs_at_work(session, now=now) if jobs else []
    explained = explain(jobs, agents, reserve_after_s=reserve_after_s, gangs=gangs)
    can_any_start = any(job.job_id not in explained for job in jobs)
    if_ready = (idle_reason() if can_any_start else None) or ABOUT_TO_START
    for job in jobs:
        text = explained.get(job.job_id, if_ready)
        found[job.job_id] = WaitingReason(sweep_id=job.sweep_id, text=text)
    return found


def _held_reasons(session: Session) -> dict[int, str]:
    """Say by sweep why no job of it is started."""
    held = select(SweepRow.id, SweepRow.is_paused, SweepRow.budget_machine_s).where(IS_HELD)
    return {
        sweep_id: "its sweep is paused"
        if is_paused
        else f"its sweep's budget of {machine_hours(budget_machine_s)} is used up"
        for sweep_id, is_paused, budget_machine_s in session.execute(held)
    }


def missing_agents(
    summaries: Iterable[SweepSummary], reasons: Mapping[int, WaitingReason]
) -> dict[int, str]:
    """Return which agents are missing for sweeps that the live ones cannot serve at all."""
    open_ids = {one.sweep_id for one in summaries if may_wait_for_agents(one)}
    of_sweep: dict[int, dict[str, None]] = {}
    for reason in reasons.values():
        if reason.sweep_id in open_ids:
            if reason.is_unschedulable:
                of_sweep.setdefault(reason.sweep_id, {})[reason.text] = None
            else:
                open_ids.remove(reason.sweep_id)
    return {
        sweep_id: "; ".join(itertools.islice(texts, _MOST_REASONS))
        + (f"; and {more} more reasons" if (more := len(texts) - _MOST_REASONS) > 0 else "")
        for sweep_id, texts in of_sweep.items()
        if sweep_id in open_ids
    }


def may_wait_for_agents(summary: SweepSummary) -> bool:
    """Whether a sweep is neither held nor over, and nothing of it is at work."""
    active_count = active_job_count(summary.counts)
    return not summary.is_held and not active_count and bool(summary.counts[JobState.WAITING])


def group_reasons(reasons: Mapping[int, WaitingReason]) -> list[ReasonGroup]:
    """Put the jobs of a sweep that have one reason together, in the order of the first of them."""
    first: dict[tuple[int, str], int] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for job_id, reason in reasons.items():
        key = reason.sweep_id, reason.text
        first.setdefault(key, job_id)
        counts[key] += 1
    return [
        ReasonGroup(sweep_id=key[0], job_id=job_id, job_count=counts[key], reason=key[1])
        for key, job_id in first.items()
    ]
