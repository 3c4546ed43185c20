"""Why jobs wait, as commands say it."""

from __future__ import annotations

import dataclasses
import datetime as dt

from sqlalchemy.orm import Session

from farm.cli.session import stopped_farm
from farm.config import Settings
from farm.life_signs import idle_reason
from farm.store.agents import live_agents
from farm.store.waiting_reasons import ABOUT_TO_START, Waits, queue_reasons


def waits_of(session: Session, loaded: Settings) -> dict[int, Waits]:
    """Say of every job that waits why, the first in the queue first.

    The broker is asked for a scheduler where a job could start: without one it never would.
    """
    reasons = stored_waits(session, loaded)
    ready = [job_id for job_id, waits in reasons.items() if waits.reason == ABOUT_TO_START]
    why = idle_reason(loaded.broker_url) if ready else None
    if why is not None:
        reasons |= {i: dataclasses.replace(reasons[i], reason=why) for i in ready}
    return reasons


def stored_waits(session: Session, loaded: Settings) -> dict[int, Waits]:
    """Say of every job that waits why, as `waits_of` does, without asking the broker."""
    now = dt.datetime.now(dt.UTC)
    is_stopped = stopped_farm(loaded) is not None
    return queue_reasons(
        session,
        now=now,
        agents=() if is_stopped else live_agents(session, now=now, live_within_s=loaded.lease_s),
        reserve_after_s=loaded.reserve_after_s,
        policy=loaded.retry_policy,
    )
