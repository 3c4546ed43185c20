"""The first page: what the farm does now, what waits and why, and the form to enqueue a sweep."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm.config import Settings
from farm.core.lifecycle import JobState, SweepState
from farm.core.views import LiveAgent
from farm.errors import InvalidSpec
from farm.store.agents import list_agents, live_agents, set_drained
from farm.store.dashboard import (
    ServedRank,
    job_counts,
    jobs_of,
    late_report_count,
    served_ranks,
)
from farm.store.sweeps import SweepSummary, list_sweeps
from farm.store.tables import Agent, Job
from farm.submission import plan, submit
from web import params
from web.agent_status import AgentStatus, agent_status
from web.backend import backend, now, read_session, ring_after, write_session
from web.errors import Refused
from web.progress import sweep_remaining_s, waiting_reasons

bp = Blueprint("dashboard", __name__)

_SWEEPS_SHOWN = 10
_AGENTS_SHOWN = 100
_WAITING_SHOWN = 6

EXAMPLE_SWEEP = """\
name = "one machine or two?"
repetitions = 2

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [64, 256]

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = [64, 256]
"""


@dataclass(frozen=True, slots=True)
class SweepCard:
    summary: SweepSummary
    remaining_s: float | None


@dataclass(frozen=True, slots=True)
class AgentCard:
    agent: Agent
    status: AgentStatus
    served: ServedRank | None


@dataclass(frozen=True, slots=True)
class WaitingCard:
    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class FormState:
    """What the form shows: the text, and what was wrong with it."""

    text: str
    error: str | None = None


@bp.get("/")
def get_dashboard() -> ResponseReturnValue:
    """Show the farm. Query: `before`, a sweep's id, for the sweeps older than that."""
    args = params.query("before")
    return _render(FormState(EXAMPLE_SWEEP), before=params.optional_id(args, "before"))


@bp.post("/sweeps")
def post_sweep() -> ResponseReturnValue:
    """Enqueue the sweep of the form: the file if one was chosen, else the text."""
    text = request.form.get("sweep", "")
    try:
        text = _uploaded() or text
        planned = plan(params.parse_toml(text))
        with write_session() as session:
            submitted = submit(session, planned, now=now())
    except InvalidSpec as error:
        page = _render(FormState(text, str(error)))
        return page, HTTPStatus.UNPROCESSABLE_ENTITY
    except Refused as error:
        return _render(FormState(text, str(error))), error.status
    jobs = "1 job is" if submitted.job_count == 1 else f"{submitted.job_count} jobs are"
    left_out = f"; {len(submitted.skipped)} impossible left out" if submitted.skipped else ""
    flash(f"{jobs} in the queue{left_out}.")
    to = url_for("sweep.get_sweep", sweep_id=submitted.sweep_id)
    return ring_after(redirect(to, HTTPStatus.SEE_OTHER))


@bp.post("/agents/<agent_id>/drain")
def post_drain(agent_id: str) -> ResponseReturnValue:
    """Let the agent take nothing new."""
    return _set_drained(agent_id, is_drained=True)


@bp.post("/agents/<agent_id>/resume")
def post_resume(agent_id: str) -> ResponseReturnValue:
    """Let the agent take ranks again."""
    return _set_drained(agent_id, is_drained=False)


def _set_drained(agent_id: str, *, is_drained: bool) -> ResponseReturnValue:
    name = params.agent_name(agent_id)
    with write_session() as session:
        set_drained(session, name, is_drained=is_drained)
    flash(f"{name} takes {'nothing new' if is_drained else 'jobs again'}.")
    return ring_after(redirect(url_for(".get_dashboard"), HTTPStatus.SEE_OTHER))


def _uploaded() -> str | None:
    upload = request.files.get("file")
    if upload is None or not upload.filename:
        return None
    content: bytes = upload.read()
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidSpec("file", upload.filename, "a TOML file, which is UTF-8 text") from None


def _render(form: FormState, *, before: int | None = None) -> str:
    settings, instant = backend().settings, now()
    with read_session() as session:
        counts = job_counts(session)
        agents = list_agents(session, limit=_AGENTS_SHOWN)
        served = served_ranks(session, [a.id for a in agents])
        sweeps = list_sweeps(session, before_id=before, limit=_SWEEPS_SHOWN)
        live = live_agents(session, now=instant, live_within_s=settings.lease_s)
        cards = [
            SweepCard(s, sweep_remaining_s(session, s, now=instant, agent_count=len(live)))
            for s in sweeps
        ]
        waiting = _waiting(session, settings, live, now=instant)
        late_count = late_report_count(session)
    return render_template(
        "dashboard.html",
        counts={state.value: count for state, count in counts.items()},
        active_count=counts[JobState.LEASED] + counts[JobState.RUNNING],
        agent_count=len(live),
        late_count=late_count,
        sweeps=cards,
        is_first_page=before is None,
        older_before=sweeps[-1].sweep_id if len(sweeps) == _SWEEPS_SHOWN else None,
        agents=_agent_cards(agents, served, settings, now=instant),
        has_more_agents=len(agents) == _AGENTS_SHOWN,
        waiting=waiting,
        form=form,
        is_busy=any(s.state is not SweepState.FINISHED for s in sweeps),
    )


def _agent_cards(
    agents: Sequence[Agent],
    served: dict[str, ServedRank],
    settings: Settings,
    *,
    now: dt.datetime,
) -> list[AgentCard]:
    """Return the agents, those that are gone last."""
    cards = [
        AgentCard(a, agent_status(a, now=now, lease_s=settings.lease_s), served.get(a.id))
        for a in agents
    ]
    return sorted(cards, key=lambda card: card.status is AgentStatus.LOST)


def _waiting(
    session: Session, settings: Settings, live: Sequence[LiveAgent], *, now: dt.datetime
) -> list[WaitingCard]:
    reasons = waiting_reasons(session, settings, live, now=now)
    first = list(reasons)[:_WAITING_SHOWN]
    jobs = jobs_of(session, first)
    return [WaitingCard(jobs[job_id], reasons[job_id]) for job_id in first if job_id in jobs]
