"""Average CPU, memory and network of each role over time. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from farm.measuring.sampled import USED_BY_ROLE
from farm.store.result_tables import SampleRow
from farm.store.series.sample_ranges import extent, ranks_there, stored_span
from farm.store.series.sample_rows import plausible
from farm.store.tables import AttemptRow

TRAINING, SERVING = "worker", "ps"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSeries:
    """Means over the ranks of a role by metric: (tick, value), None where it was not measured."""

    name: str
    metrics: Mapping[str, Sequence[tuple[int, float | None]]]


def roles_apart(
    session: Session, attempt: AttemptRow, *, training_count: int, max_points: int
) -> list[RoleSeries]:
    """Return the means over the agents that train, the first ones, and over those that serve."""
    width = _width(session, attempt, max_points)
    if width is None:
        return []
    role = case((SampleRow.rank < training_count, TRAINING), else_=SERVING)
    metrics = {metric.name: plausible(metric.name) for metric in USED_BY_ROLE}
    begin = SampleRow.tick - SampleRow.tick % width
    rows = session.execute(
        select(role, begin, *(func.avg(column) for column in metrics.values()))
        .where(*_of(attempt))
        .group_by(role, begin)
        .order_by(role, begin)
    ).all()
    return [
        _series(name, metrics, [row[1:] for row in rows if row[0] == name])
        for name in (TRAINING, SERVING)
    ]


def roles_collocated(session: Session, attempt: AttemptRow, *, max_points: int) -> list[RoleSeries]:
    """Return the means over the ranks of what their processes of each role used.

    The network is a rank's, of whichever process. The roles' shares are stored as JSON, which takes
    long to read: so of each range only one tick is, and not a mean.
    """
    width = _width(session, attempt, max_points)
    if width is None:
        return []
    found = []
    for name in (TRAINING, SERVING):
        metrics = {
            metric.name: SampleRow.extra[metric.role_extra(name)].as_float()
            for metric in USED_BY_ROLE
            if metric.role_extra is not None
        }
        rows = session.execute(
            select(SampleRow.tick, *(func.avg(column) for column in metrics.values()))
            # Where rows stand for several ticks they have the last one's number.
            .where(*_of(attempt), (SampleRow.tick + 1) % width == 0)
            .group_by(SampleRow.tick)
            .order_by(SampleRow.tick)
        ).all()
        found.append(_series(name, metrics, rows))
    return found


def _series(name: str, metrics: Mapping[str, Any], rows: Sequence[Any]) -> RoleSeries:
    values = {
        metric: [(row[0], None if row[i] is None else float(row[i])) for row in rows]
        for i, metric in enumerate(metrics, start=1)
    }
    return RoleSeries(name=name, metrics=values)


def _width(session: Session, attempt: AttemptRow, max_points: int) -> int | None:
    """Return the ticks of a point, a multiple of those of a stored row; None without samples."""
    found = extent(session, attempt, ranks_there(session, attempt))
    if found is None:
        return None
    span = stored_span(session, attempt)
    ticks = found[1] - found[0] + 1
    return -(-ticks // (max_points * span)) * span


def _of(attempt: AttemptRow) -> list[ColumnElement[bool]]:
    # The day comes first in the key: without it every day's partition would be searched.
    return [SampleRow.day == attempt.leased_at.date(), SampleRow.attempt_id == attempt.id]
