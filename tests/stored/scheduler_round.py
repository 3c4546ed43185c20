"""One round of the scheduler, without its process: what it does, and what it would send."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine

from farm.scheduler.advancing import advance_active_attempts
from farm.scheduler.outgoing import Outgoing, Rules
from farm.scheduler.placing import PlacingState, place_jobs


def run_round(
    engine: Engine, *, now: dt.datetime, rules: Rules, state: PlacingState | None = None
) -> list[Outgoing]:
    """Lead attempts, then place jobs; return all commands in the order in which they go out."""
    outgoing = advance_active_attempts(engine, now=now, rules=rules)
    return outgoing + place_jobs(engine, now=now, rules=rules, known=state or PlacingState())
