"""Budgets of sweeps: the machine time that their jobs may take, and what they have taken."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from sqlalchemy import case, extract, func, literal, or_, select, update
from sqlalchemy.orm import Session

from farm.store.base import Utc
from farm.store.tables import AttemptRow, JobRow, SweepRow

# Of a sweep no further job of which is started.
IS_HELD = or_(SweepRow.is_paused, SweepRow.budget_used_up_at.is_not(None))


def spent_machine_s(
    session: Session, sweep_ids: Collection[int], *, now: dt.datetime
) -> dict[int, float]:
    """Return by sweep how long all its attempts have held agents, times how many agents.

    Attempts that failed count too, and those that run up to now.
    """
    # SQLite knows whole seconds only; the errors even out over attempts.
    ended_at = func.coalesce(AttemptRow.ended_at, literal(now, Utc))
    taken_s = extract("epoch", ended_at) - extract("epoch", AttemptRow.leased_at)
    # The server's clock may have been set back since the lease.
    spent_s = func.sum(case((taken_s > 0, taken_s), else_=0) * JobRow.agent_count)
    rows = session.execute(
        select(JobRow.sweep_id, spent_s)
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(JobRow.sweep_id.in_(sweep_ids))
        .group_by(JobRow.sweep_id)
    )
    # PostgreSQL reckons exactly, in decimals.
    return dict.fromkeys(sweep_ids, 0.0) | {sweep_id: float(spent) for sweep_id, spent in rows}


def over_budget(
    session: Session, sweep_ids: Collection[int], *, now: dt.datetime
) -> dict[int, float]:
    """Return what those of these sweeps have spent that have used up their budgets."""
    limited = select(SweepRow.id, SweepRow.budget_machine_s).where(
        SweepRow.id.in_(sweep_ids), SweepRow.budget_machine_s.is_not(None)
    )
    budgets = session.execute(limited).all()
    if not budgets:
        return {}
    spent_s = spent_machine_s(session, [sweep_id for sweep_id, _ in budgets], now=now)
    return {
        sweep_id: spent_s[sweep_id]
        for sweep_id, budget_s in sorted(budgets)
        if spent_s[sweep_id] >= (budget_s or 0.0)
    }


def use_up_budgets(session: Session, sweep_ids: Collection[int], *, now: dt.datetime) -> None:
    """Hold those of these sweeps that have used up their budgets.

    Several schedulers may do so at once: the first instant stays.
    """
    for sweep_id, spent_s in over_budget(session, sweep_ids, now=now).items():
        session.execute(
            update(SweepRow)
            .where(
                SweepRow.id == sweep_id,
                SweepRow.budget_used_up_at.is_(None),
                # It may have been raised meanwhile.
                SweepRow.budget_machine_s <= spent_s,
            )
            .values(budget_used_up_at=now)
            .execution_options(synchronize_session=False)
        )
