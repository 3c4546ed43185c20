"""Prints why jobs wait."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from sqlalchemy.orm import Session

from farm.broker.health_records import find_idle_reason
from farm.cli.session import stopped_farm
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.queue.waiting_reasons import Waits, queue_reasons, with_idle_reason


def waits_of(session: Session, loaded: Settings) -> Mapping[int, Waits]:
    """Say of every job that waits why, the first in the queue first.

    The broker is asked for a scheduler where a job could start: without one it never would.
    """

    def idle_reason() -> str | None:
        idle = find_idle_reason(loaded.broker_url)
        return None if idle is None else idle.full

    return with_idle_reason(stored_waits(session, loaded), idle_reason)


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
