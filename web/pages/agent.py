"""The page of one agent: its hardware, the ranks it served, and drift of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue

from farm.keys.api_tokens import Scope
from farm.store.agents.agent_status import agent_status
from farm.store.agents.agents import (
    agents_of_machine,
    attempt_state_counts,
    find_agent,
    ranks_of,
    set_drained,
    spool_position,
)
from farm.store.agents.control_runs import agent_runs
from farm.store.dashboard import served_ranks
from farm.store.reports.late_reports import late_count
from farm.store.tables import SpoolPosition
from web import parameters, request_body
from web.access.authorization import own_address
from web.access.scopes import needs
from web.backend import backend, now, read_session, wake_after, write_session
from web.drawing.plotly import page_with_charts
from web.drawing.rendered import drawn
from web.live.page_cache import shared
from web.overview.agent_card import AgentCard
from web.overview.figures import drift_figure, latest_drift
from web.parameters import NextParameters, Parameters, RowId

bp = Blueprint("agent", __name__)

_RANKS_SHOWN = 50
_ATTEMPTS_COUNTED = 500
_RUNS_DRAWN = 300
_NEIGHBOURS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDelivery:
    """How the agent's reports arrive. `position` None: none ever has."""

    position: SpoolPosition | None
    late_count: int


class AgentParameters(Parameters):
    """Only ranks before this attempt."""

    before: RowId | None = None


@bp.get("/agents/<agent_id>")
@shared
def get_agent(agent_id: str) -> ResponseReturnValue:
    """Show one agent. Query: `before`, an attempt's id, for the ranks it served before that one."""
    before = parameters.read(AgentParameters).before
    name, instant, lease_s = request_body.agent_name(agent_id), now(), backend().settings.lease_s
    with read_session() as session:
        agent = find_agent(session, name)
        served = served_ranks(session, [name]).get(name)
        ranks = ranks_of(session, name, before_token=before, limit=_RANKS_SHOWN + 1)
        state_counts = attempt_state_counts(session, name, limit=_ATTEMPTS_COUNTED)
        runs = agent_runs(session, name, limit=_RUNS_DRAWN)
        delivery = ReportDelivery(
            position=spool_position(session, name),
            late_count=late_count(session, agent_id=name),
        )
        beside = agents_of_machine(session, agent.machine_id, limit=_NEIGHBOURS_SHOWN + 1)
    drift = drift_figure(runs, now=instant)
    shown = ranks[:_RANKS_SHOWN]
    return page_with_charts(
        "agent.html",
        card=AgentCard(agent, agent_status(agent, now=instant, lease_s=lease_s), served),
        agent=agent,
        neighbours=[other for other in beside if other != name][:_NEIGHBOURS_SHOWN],
        delivery=delivery,
        ranks=shown,
        is_first_page=before is None,
        older_before=shown[-1].token if len(ranks) > _RANKS_SHOWN else None,
        state_counts=state_counts,
        counted_attempts=sum(state_counts.values()),
        drift=None if drift is None else drawn(drift),
        last_run=latest_drift(runs),
        has_more_runs=len(runs) == _RUNS_DRAWN,
        now=instant,
    )


@bp.post("/agents/<agent_id>/drain")
@needs(Scope.ADMIN)
def post_drain(agent_id: str) -> ResponseReturnValue:
    """Let the agent take nothing new. Field: `next`, the page to go back to."""
    return _set_drained(agent_id, is_drained=True)


@bp.post("/agents/<agent_id>/resume")
@needs(Scope.ADMIN)
def post_resume(agent_id: str) -> ResponseReturnValue:
    """Let the agent take ranks again. Field: `next`, the page to go back to."""
    return _set_drained(agent_id, is_drained=False)


def _set_drained(agent_id: str, *, is_drained: bool) -> ResponseReturnValue:
    name = request_body.agent_name(agent_id)
    with write_session() as session:
        set_drained(session, name, is_drained=is_drained)
    flash(f"{name} takes {'nothing new' if is_drained else 'jobs again'}.")
    back = own_address(parameters.read_from(NextParameters, request.form).next)
    to = back or url_for("dashboard.get_dashboard")
    return wake_after(redirect(to, HTTPStatus.SEE_OTHER))
