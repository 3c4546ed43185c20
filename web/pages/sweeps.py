"""The list of sweeps, newest first, optionally of one status."""

from __future__ import annotations

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from farm.gang.lifecycle import SweepState
from farm.store.agents.agents import live_agent_count
from farm.store.sweeps.sweeps import SweepStatus, list_sweeps
from web import received
from web.backend import backend, now, read_session
from web.live.page_cache import shared
from web.overview.progress import loads_of, sweep_cards, sweeps_that_wait

bp = Blueprint("sweeps", __name__)

_SHOWN = 25


@bp.get("/sweeps")
@shared
def get_sweeps() -> ResponseReturnValue:
    """List sweeps. Query: `status`; `before`, a sweep's id, for those that are older."""
    args = received.query("status", "before")
    status = received.choice(args, "status", SweepStatus)
    before, instant = received.optional_id(args, "before"), now()
    with read_session() as session:
        found = list_sweeps(session, before_id=before, limit=_SHOWN + 1, status=status)
        shown = found[:_SHOWN]
        ids = [s.sweep_id for s in shown if s.state is not SweepState.FINISHED]
        loads = loads_of(session, now=instant, sweep_ids=ids) if ids else {}
        waits_for = sweeps_that_wait(session, shown, now=instant)
        agent_count = live_agent_count(
            session, now=instant, live_within_s=backend().settings.lease_s
        )
    return render_template(
        "sweeps.html",
        cards=sweep_cards(shown, loads, agent_count=agent_count, waits_for=waits_for),
        status=status,
        statuses=list(SweepStatus),
        is_first_page=before is None,
        older_before=shown[-1].sweep_id if len(found) > _SHOWN else None,
        is_busy=any(s.status in (SweepStatus.RUNNING, SweepStatus.WAITING) for s in shown),
    )
