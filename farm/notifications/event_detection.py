"""Finds the events that call for notifications, by reading the store.

Each event has the instant at which it happened, so a second search finds the same event, and the
store keeps each event once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from sqlalchemy.orm import Session

from farm.cells.comparison import CellPair, Verdict, compare_sweeps
from farm.cells.json_forms import compared_json
from farm.cells.reading import read_sweep
from farm.gang.lifecycle import JobState
from farm.notifications.events import EventKind
from farm.recommend.prices import Prices
from farm.store.notifications import (
    AGENT_SUBJECT,
    DetectedEvent,
    ended_sweeps,
    silent_agents,
    sweeps_over_budget,
)
from farm.store.sweeps.baselines import list_baselines
from farm.store.sweeps.budgets import spent_machine_s
from farm.store.sweeps.sweeps import sweep_summary
from farm.text.display import machine_hours
from farm.text.plurals import counted

_MAX_CELLS = 20  # of a message about a baseline
# An agent that was silent for longer when somebody first looked is no news.
_NEWS_FOR = dt.timedelta(hours=1)


def events_of_sweeps(session: Session, *, since: dt.datetime) -> Iterator[DetectedEvent]:
    """Yield the events of the sweeps that ended since then."""
    for ended in ended_sweeps(session, since=since):
        summary = sweep_summary(session, ended.sweep_id)
        counts = summary.counts
        failed, cancelled = counts[JobState.FAILED], counts[JobState.CANCELLED]
        counts_text = (
            f"{counts[JobState.SUCCEEDED]} of {counted(summary.job_count, 'job')} succeeded"
        )
        counts_text += f", {failed} failed" if failed else ""
        counts_text += f", {cancelled} cancelled" if cancelled else ""
        about = {"sweep_id": ended.sweep_id, "sweep_name": summary.name}
        yield DetectedEvent(
            kind=EventKind.SWEEP_FAILED if failed else EventKind.SWEEP_FINISHED,
            subject=f"sweep {ended.sweep_id}",
            at=ended.at,
            sweep_id=ended.sweep_id,
            data={
                "text": f"sweep {ended.sweep_id}, {summary.name}: {counts_text}",
                **about,
                "job_count": summary.job_count,
                "jobs_by_state": summary.jobs_by_state,
            },
        )
        for baseline in list_baselines(session):
            if baseline.sweep_id == ended.sweep_id:
                continue
            slower = slower_cells(session, baseline.sweep_id, ended.sweep_id)
            if slower:
                cells = counted(len(slower), "cell is", "cells are")
                yield DetectedEvent(
                    kind=EventKind.BASELINE_EXCEEDED,
                    subject=f"sweep {ended.sweep_id}, baseline {baseline.name}",
                    at=ended.at,
                    sweep_id=ended.sweep_id,
                    data={
                        "text": f"sweep {ended.sweep_id}, {summary.name}: {cells} slower than in "
                        f"the baseline {baseline.name}, sweep {baseline.sweep_id}",
                        **about,
                        "baseline": baseline.name,
                        "baseline_sweep_id": baseline.sweep_id,
                        "slower_cell_count": len(slower),
                        "slower_cells": [
                            compared_json(pair.a, pair.b, pair.ratio)
                            for pair in slower[:_MAX_CELLS]
                        ],
                    },
                )


def events_of_budgets(session: Session, *, since: dt.datetime) -> Iterator[DetectedEvent]:
    """Yield an event for each sweep that used up its budget since then."""
    for sweep in sweeps_over_budget(session, since=since):
        at, summary = sweep.budget_used_up_at, sweep_summary(session, sweep.id)
        assert at is not None, "it is over its budget"
        budget = machine_hours(summary.budget_machine_s)
        left = f"{summary.counts[JobState.WAITING]} of {counted(summary.job_count, 'job')}"
        yield DetectedEvent(
            kind=EventKind.BUDGET_USED_UP,
            subject=f"sweep {sweep.id}",
            at=at,
            sweep_id=sweep.id,
            data={
                "text": f"sweep {sweep.id}, {sweep.name}: its budget of {budget} is used up, and "
                f"{left} left",
                "sweep_id": sweep.id,
                "sweep_name": sweep.name,
                "budget_machine_s": summary.budget_machine_s,
                "spent_machine_s": spent_machine_s(session, [sweep.id], now=at)[sweep.id],
                "job_count": summary.job_count,
                "jobs_by_state": summary.jobs_by_state,
            },
        )


def slower_cells(session: Session, baseline_sweep_id: int, sweep_id: int) -> list[CellPair]:
    """Return the cells of a sweep that are slower than in another, as `farm check` judges them."""
    found = compare_sweeps(
        *(read_sweep(session, one, prices=Prices()).table for one in (baseline_sweep_id, sweep_id))
    )
    return [pair for pair in found.pairs if pair.change() is Verdict.SLOWER]


def events_of_agents(
    session: Session, *, now: dt.datetime, lost_after: dt.timedelta
) -> Iterator[DetectedEvent]:
    """Yield the agents that were not heard for so long, lately."""
    for agent in silent_agents(session, since=now - _NEWS_FOR, until=now - lost_after):
        assert agent.heartbeat_at is not None, "it was heard between the two"
        heard_at = agent.heartbeat_at.isoformat(timespec="seconds")
        yield DetectedEvent(
            kind=EventKind.AGENT_LOST,
            subject=f"{AGENT_SUBJECT}{agent.id}",
            at=agent.heartbeat_at,
            data={
                "text": f"agent {agent.id} was last heard at {heard_at}",
                "agent_id": agent.id,
                "last_heard_at": heard_at,
            },
        )
