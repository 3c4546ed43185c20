"""Stores the control runs of agents, and reads each with its agent's earlier ones."""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Row, Text, cast, func, select
from sqlalchemy.orm import Session, aliased

from farm.errors import InvalidSpec
from farm.measuring.control_run import PAST_COUNT, ControlRun
from farm.messages.agents import Hardware
from farm.store.engine import IDS_A_QUERY
from farm.store.tables import AgentRow, AttemptRow, RankRow
from farm.values.codec import from_text

# Of so many runs of an agent the comparable ones are its past. Without an end to it, an agent of
# many thousand runs would have all of them compared each time.
_LOOKED_AT = 3 * PAST_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One control run of an agent. Those of equal `circumstances` may be compared.

    `neighbour_count`: of the ranks of its gang on its machine, itself included; `kind`: the
    fingerprint of its hardware at that time, None where another version wrote it.
    """

    token: int
    at: dt.datetime  # of the lease
    control_s: float
    neighbour_count: int
    kind: str | None

    @property
    def circumstances(self) -> tuple[int, str | None]:
        """Conditions that change the time of a run although the machine is not slower."""
        return self.neighbour_count, self.kind


def control_runs(session: Session, tokens: Collection[int]) -> dict[tuple[int, int], ControlRun]:
    """Return (token, rank) to the control run of every rank of these attempts that has one.

    The attempts are active, so they are the latest of their agents. A run's past is the agent's
    earlier runs, however their attempts ended, on the same hardware and with as many ranks of the
    gang on the same machine: cores that share a cache, or are threads of one core, slow each other
    down.
    """
    if not tokens:
        return {}
    rows = _latest_runs(session, tokens)
    neighbours = _neighbour_counts(session, {row.attempt_id for row in rows})
    found: dict[tuple[int, int], ControlRun] = {}
    for _, of_agent in groupby(rows, key=lambda row: row.agent_id):
        runs = list(of_agent)
        for index, run in enumerate(runs):
            if run.attempt_id in tokens:
                past_s = _comparable_s(run, runs[index + 1 :], neighbours)
                found[run.attempt_id, run.rank] = ControlRun(
                    control_s=run.control_s,
                    past_s=past_s,
                    core_count=max(1, int(json.loads(run.hardware).get("core_count") or 1)),
                )
    return found


def agent_runs(session: Session, agent_id: str, *, limit: int) -> list[AgentRun]:
    """Return the latest control runs of an agent, the oldest of them first."""
    rows = session.execute(
        select(
            RankRow.attempt_id,
            AttemptRow.leased_at,
            RankRow.control_s,
            AgentRow.machine_id,
            cast(RankRow.hardware, Text).label("hardware"),
        )
        .join(AttemptRow, AttemptRow.id == RankRow.attempt_id)
        .join(AgentRow, AgentRow.id == RankRow.agent_id)
        .where(RankRow.agent_id == agent_id, RankRow.control_s.is_not(None))
        .order_by(RankRow.attempt_id.desc())
        .limit(limit)
    ).all()
    neighbours = _neighbour_counts(session, {row.attempt_id for row in rows})
    runs: list[AgentRun] = []
    for row in reversed(rows):
        assert row.control_s is not None, "the query leaves those out"
        runs.append(
            AgentRun(
                token=row.attempt_id,
                at=row.leased_at,
                control_s=row.control_s,
                neighbour_count=neighbours.get((row.attempt_id, row.machine_id), 1),
                kind=_kind(row.hardware),
            )
        )
    return runs


def _latest_runs(session: Session, tokens: Collection[int]) -> Sequence[Row[Any]]:
    """Return the latest runs of every agent of these attempts, by agent, the last first."""
    # Of each agent the oldest that is looked at, found by the index, so that the age of an agent
    # does not count: numbering all its runs took longer with each.
    run = aliased(RankRow)
    oldest = (
        select(run.attempt_id)
        .where(run.agent_id == AgentRow.id, run.control_s.is_not(None))
        .order_by(run.attempt_id.desc())
        .offset(_LOOKED_AT - 1)
        .limit(1)
        .scalar_subquery()
    )
    agents = (
        select(AgentRow.id, AgentRow.machine_id, func.coalesce(oldest, 0).label("since"))
        .where(AgentRow.id.in_(select(RankRow.agent_id).where(RankRow.attempt_id.in_(tokens))))
        .subquery()
    )
    return session.execute(
        select(
            RankRow.agent_id,
            RankRow.attempt_id,
            RankRow.rank,
            RankRow.control_s,
            cast(RankRow.hardware, Text).label("hardware"),
            agents.c.machine_id,
        )
        .join(agents, (agents.c.id == RankRow.agent_id) & (RankRow.attempt_id >= agents.c.since))
        .where(RankRow.control_s.is_not(None))
        .order_by(RankRow.agent_id, RankRow.attempt_id.desc())
    ).all()


def _neighbour_counts(session: Session, tokens: Collection[int]) -> dict[tuple[int, str], int]:
    """Count the ranks of attempts by (token, machine).

    Asked for each run by itself, that was the longest of all that the scheduler asked for.
    """
    counts: dict[tuple[int, str], int] = {}
    ids = sorted(tokens)
    for begin in range(0, len(ids), IDS_A_QUERY):
        rows = session.execute(
            select(RankRow.attempt_id, AgentRow.machine_id, func.count())
            .join(AgentRow, AgentRow.id == RankRow.agent_id)
            .where(RankRow.attempt_id.in_(ids[begin : begin + IDS_A_QUERY]))
            .group_by(RankRow.attempt_id, AgentRow.machine_id)
        )
        counts |= {(token, machine_id): count for token, machine_id, count in rows}
    return counts


def _comparable_s(
    run: Row[Any], earlier: Sequence[Row[Any]], neighbours: Mapping[tuple[int, str], int]
) -> tuple[float, ...]:
    kind = _kind(run.hardware)
    # An agent that has just moved to another machine has no count there, nor anything to compare.
    beside = neighbours.get((run.attempt_id, run.machine_id))
    alike = [
        other.control_s
        for other in earlier
        if neighbours.get((other.attempt_id, other.machine_id)) == beside
        and _kind(other.hardware) == kind
    ]
    return tuple(alike[:PAST_COUNT]) if kind is not None and beside is not None else ()


@functools.lru_cache(maxsize=1024)
def _kind(hardware: str) -> str | None:
    """Return the fingerprint of hardware as it is stored: there are few kinds, and many runs."""
    try:
        return from_text(Hardware, hardware).fingerprint
    except InvalidSpec:
        return None  # of an attempt that says so itself; here it would stop all others
