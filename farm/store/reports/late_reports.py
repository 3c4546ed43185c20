"""Stores the first few rejected reports of an agent, and counts the others.

An agent that was cut off sends its reports when it is back, and a stolen one may send anything.
Neither may fill the store. The stored reports show what arrived, and the count shows how much.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, select, update
from sqlalchemy.orm import Session

from farm.store.tables import AgentRow, LateReport, SpoolPosition

SpoolKey = tuple[str, str]  # agent id and generation

KEPT_REPORTS = 50  # of one agent
KEPT_BODY_BYTES = 4096  # of one report; a longer body is left out
KEPT_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedReport:
    """A report that does not count, and why. `body`: as a database takes it."""

    agent_id: str
    generation: str
    number: int
    token: int
    rank: int
    kind: str
    body: dict[str, object]
    reason: str


def set_aside(session: Session, refused: Sequence[RefusedReport], *, now: dt.datetime) -> None:
    """Keep reports that do not count, or count them where their agents have enough kept ones.

    The caller has locked the positions of their spools, which hold the counts. Of removed
    agents nothing is kept or counted.
    """
    if not refused:
        return
    names = {one.agent_id for one in refused}
    removed = select(AgentRow.id).where(AgentRow.id.in_(names), AgentRow.is_removed)
    agents = sorted(names - set(session.scalars(removed)))
    kept = (
        select(LateReport.agent_id, func.count())
        .where(LateReport.agent_id.in_(agents))
        .group_by(LateReport.agent_id)
    )
    left = dict.fromkeys(agents, KEPT_REPORTS)
    for agent_id, count in session.execute(kept):
        left[agent_id] -= count
    counted: Counter[SpoolKey] = Counter()
    for one in refused:
        if one.agent_id not in left:
            continue
        if left[one.agent_id] <= 0:
            counted[one.agent_id, one.generation] += 1
            continue
        left[one.agent_id] -= 1
        session.add(_row(one, now=now))
    _count(session, counted, now=now)


def late_count(
    session: Session, *, agent_id: str | None = None, since: dt.datetime | None = None
) -> int:
    """Return how many reports did not count: all, an agent's, or since an instant.

    What was only counted is known by the hour, so that `since` may take in the hour before it.
    """
    rows = select(func.count()).select_from(LateReport)
    count = SpoolPosition.late_count if since is None else SpoolPosition.late_hour_count
    counts = select(func.sum(count))
    if agent_id is not None:
        rows = rows.where(LateReport.agent_id == agent_id)
        counts = counts.where(SpoolPosition.agent_id == agent_id)
    if since is not None:
        rows = rows.where(LateReport.received_at >= since)
        counts = counts.where(SpoolPosition.late_hour >= _hour(since))
    return (session.scalar(rows) or 0) + int(session.scalar(counts) or 0)


def forget_late_counts(session: Session, *, before: dt.datetime) -> None:
    """Forget how many reports that are not kept did not count, of spools without later ones."""
    session.execute(
        update(SpoolPosition)
        .where(SpoolPosition.late_hour < before)
        .values(late_count=0, late_hour_count=0, late_hour=None)
    )


def forgotten_late_count(session: Session, *, before: dt.datetime) -> int:
    """Return how many `forget_late_counts` would forget."""
    counts = select(func.sum(SpoolPosition.late_count)).where(SpoolPosition.late_hour < before)
    return int(session.scalar(counts) or 0)


def _row(one: RefusedReport, *, now: dt.datetime) -> LateReport:
    is_short = len(json.dumps(one.body)) <= KEPT_BODY_BYTES
    return LateReport(
        agent_id=one.agent_id,
        generation=one.generation,
        number=one.number,
        token=one.token,
        rank=one.rank,
        kind=one.kind[:32],
        body=one.body if is_short else {},
        received_at=now,
        reason=one.reason[:KEPT_REASON_CHARACTERS],
    )


def _count(session: Session, counted: Counter[SpoolKey], *, now: dt.datetime) -> None:
    hour = _hour(now)
    for (agent_id, generation), count in sorted(counted.items()):
        of_hour = case((SpoolPosition.late_hour == hour, SpoolPosition.late_hour_count), else_=0)
        session.execute(
            update(SpoolPosition)
            .where(SpoolPosition.agent_id == agent_id, SpoolPosition.generation == generation)
            .values(
                late_count=SpoolPosition.late_count + count,
                late_hour=hour,
                late_hour_count=of_hour + count,
            )
            .execution_options(synchronize_session=False)
        )


def _hour(at: dt.datetime) -> dt.datetime:
    return at.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
