"""The dashboard: running and waiting jobs, reasons for waiting, and the expected end."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import Blueprint
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm.gang.lifecycle import JobState, active_job_count
from farm.settings.server import Settings
from farm.store.agents.agent_status import agent_status
from farm.store.agents.agents import AgentOrder, agent_count, agent_page, live_agents
from farm.store.dashboard import (
    finished_per_hour,
    job_counts,
    jobs_of,
    served_ranks,
)
from farm.store.queue.waiting_reasons import WaitingReason, group_reasons, missing_agents
from farm.store.reports.late_reports import late_count
from farm.store.sweeps.sweeps import list_sweeps
from farm.store.tables import JobRow
from web import parameters
from web.backend import backend, now, read_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn
from web.live.page_cache import shared
from web.overview.agent_card import AgentCard
from web.overview.figures import throughput_figure
from web.overview.progress import cached_waiting_reasons, loads_of, queue_estimate, sweep_cards
from web.parameters import PageNumber, Parameters

bp = Blueprint("dashboard", __name__)

_SWEEPS_SHOWN = 5
_AGENTS_SHOWN = 50
_WAITING_SHOWN = 8
_HOURS_SHOWN = 24


@dataclass(frozen=True, slots=True)
class WaitingCard:
    """A job of the queue, why it waits, and for how long it has.

    `more_count`: others of its sweep that wait for the same reason, and have no card.
    """

    job: JobRow
    reason: str
    waited_s: float
    more_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTable:
    """A page of the agents; `page` counts from 1. `has_all`: there are no others."""

    cards: Sequence[AgentCard]
    order: AgentOrder
    page: int
    total_count: int
    has_all: bool

    @property
    def page_count(self) -> int:
        """How many pages there are, one even where there is nothing."""
        return max(1, -(-self.total_count // _AGENTS_SHOWN))


class DashboardParameters(Parameters):
    """The order of the agents, and the page of them."""

    sort: AgentOrder = AgentOrder.NAME
    agents: PageNumber = 1


@bp.get("/")
@shared
def get_dashboard() -> ResponseReturnValue:
    """Show the farm. Query: `sort`, the order of the agents, and `agents`, the page of them."""
    query = parameters.read(DashboardParameters)
    order, page = query.sort, query.agents
    settings, instant = backend().settings, now()
    with read_session() as session:
        counts = job_counts(session)
        agents = _agents(session, settings, order, page=page, now=instant)
        known = [card.agent for card in agents.cards]
        live = live_agents(
            session,
            now=instant,
            live_within_s=settings.lease_s,
            known=known,
            are_all_known=agents.has_all,
        )
        loads = loads_of(session, now=instant)
        summaries = list_sweeps(session, limit=_SWEEPS_SHOWN + 1)
        queue = queue_estimate(session, loads, agent_count=len(live))
        reasons = cached_waiting_reasons(session, now=instant, agents=live)
        waiting = _waiting(session, reasons, now=instant)
        hours = finished_per_hour(session, now=instant, hour_count=_HOURS_SHOWN)
        late = late_count(session)
    throughput = throughput_figure(hours)
    active_count = active_job_count(counts)
    return page_with_charts(
        "dashboard.html",
        counts={state.value: count for state, count in counts.items()},
        active_count=active_count,
        live_count=len(live),
        late_count=late,
        agents=agents,
        orders=list(AgentOrder),
        sweeps=sweep_cards(
            summaries[:_SWEEPS_SHOWN],
            loads,
            agent_count=len(live),
            missing_agents=missing_agents(summaries, reasons),
        ),
        has_more_sweeps=len(summaries) > _SWEEPS_SHOWN,
        waiting=waiting,
        queue=queue,
        last_hour_count=hours[-1].job_count if hours else 0,
        throughput=None if throughput is None else drawn(throughput),
        # What only a pause holds back does not change by itself.
        is_busy=active_count + counts[JobState.WAITING] > queue.held_count,
    )


def _agents(
    session: Session, settings: Settings, order: AgentOrder, *, page: int, now: dt.datetime
) -> AgentTable:
    found = agent_page(
        session,
        order,
        live_since=now - dt.timedelta(seconds=settings.lease_s),
        offset=(page - 1) * _AGENTS_SHOWN,
        limit=_AGENTS_SHOWN + 1,
    )
    # Of most farms all agents are here, and neither have to be counted nor named in queries.
    has_all = page == 1 and len(found) <= _AGENTS_SHOWN
    total_count = len(found) if has_all else agent_count(session)
    found = found[:_AGENTS_SHOWN]
    served = served_ranks(session, None if has_all else [agent.id for agent in found])
    cards = [
        AgentCard(a, agent_status(a, now=now, lease_s=settings.lease_s), served.get(a.id))
        for a in found
    ]
    return AgentTable(cards=cards, order=order, page=page, total_count=total_count, has_all=has_all)


def _waiting(
    session: Session, reasons: Mapping[int, WaitingReason], *, now: dt.datetime
) -> list[WaitingCard]:
    """Return the first jobs of the queue that no pause holds back, in its order.

    Those of a sweep that the farm could not serve for one reason are one card, the first of them.
    """
    more = {
        group.job_id: group.job_count - 1
        for group in group_reasons({i: r for i, r in reasons.items() if r.is_unschedulable})
    }
    some = (
        job_id
        for job_id, reason in reasons.items()
        if (job_id in more if reason.is_unschedulable else not reason.is_held)
    )
    shown = list(itertools.islice(some, _WAITING_SHOWN))
    jobs = jobs_of(session, shown)
    return [
        WaitingCard(
            jobs[job_id],
            reasons[job_id].text,
            max(0.0, (now - jobs[job_id].due_at).total_seconds()),
            more.get(job_id, 0),
        )
        for job_id in shown
        if job_id in jobs
    ]
