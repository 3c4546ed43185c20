"""Samples thinned for charts: the minimum and maximum of each range of seconds.

A mean over a minute hides the second in which a machine stood still. So a range of ticks is
described by the minimum and maximum of each metric. The database computes them: a day of eight
ranks is 700,000 rows, of which a page reads some thousands of ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Row, case, func, select
from sqlalchemy.orm import Session

from farm.measuring.noise import foreign_load_ratio
from farm.measuring.sampled_metrics import DISTURBING, FOREIGN_LOAD, USED, USED_BY_ROLE
from farm.messages.reports import Sample
from farm.store.result_tables import SampleRow
from farm.store.series.samples import plausible
from farm.store.tables import AttemptRow

# Of these both the least and the most are given,
CHARTED = tuple(metric.name for metric in USED)
# of these the most alone: at their least they are as they should be.
_STORED_DISTURBANCES = tuple(metric.name for metric in DISTURBING if metric.is_stored)
DISTURBANCES = (*_STORED_DISTURBANCES, FOREIGN_LOAD.name)

_MOST_LOOKED_AT = 64
_FIRST_ROWS = 100
TRAINING, SERVING = "worker", "ps"

RangeValues = list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRanges:
    """Ranges of one rank in order; place i of every list is of range i. Holes are left out.

    `width_ticks`: of a range, or of the longest row, where rows stand for more than that. A range
    of 1 is a sample, whose least and most are the same. `lows` has the metrics of `CHARTED`,
    `highs` those of `DISTURBANCES` too; None where none of the range was measured.
    """

    width_ticks: int
    first_ticks: list[int] = field(default_factory=list)
    last_ticks: list[int] = field(default_factory=list)
    lows: Mapping[str, RangeValues] = field(default_factory=lambda: {name: [] for name in CHARTED})
    highs: Mapping[str, RangeValues] = field(
        default_factory=lambda: {name: [] for name in (*CHARTED, *DISTURBANCES)}
    )


def ranges_by_rank(
    session: Session,
    attempt: AttemptRow,
    *,
    ranks: Sequence[int],
    max_ranges: int,
    first_tick: int = 0,
    last_tick: int | None = None,
) -> dict[int, RankRanges]:
    """Return the chosen ranks' samples from `first_tick` to `last_tick`, both included.

    At most `max_ranges` ranges each; those of all ranks begin at the same ticks. A rank without
    samples is left out. Where ranges are wider than one tick, the foreign load has the interrupts
    in it, which are stored among the optional metrics, out of SQL's quick reach.
    """
    bounds = [SampleRow.tick >= first_tick]
    if last_tick is not None:
        bounds.append(SampleRow.tick <= last_tick)
    found = extent(session, attempt, ranks, bounds)
    if found is None:
        return {}
    width = -((found[0] - found[1] - 1) // max_ranges)
    which = [*_of(attempt), SampleRow.rank.in_(ranks), *bounds]
    if width == 1:
        return _samples(session, which)
    return _ranges(session, which, begin=found[0], width=width)


def ranks_there(session: Session, attempt: AttemptRow) -> Sequence[int]:
    """Return the ranks to look at for the ends of an attempt: all, or some of very many."""
    last = session.scalar(select(func.max(SampleRow.rank)).where(*_of(attempt)))
    return [] if last is None else range(0, last + 1, -(-(last + 1) // _MOST_LOOKED_AT))


def stored_span(session: Session, attempt: AttemptRow) -> int:
    """Return the largest number of ticks of a row: above 1 once the attempt was thinned.

    From its first rows, since `farm db prune` thins an attempt from its beginning.
    """
    first = select(SampleRow.span_ticks).where(*_of(attempt))
    rows = first.order_by(SampleRow.rank, SampleRow.tick).limit(_FIRST_ROWS).subquery()
    return session.scalar(select(func.max(rows.c.span_ticks))) or 1


def _of(attempt: AttemptRow) -> list[ColumnElement[bool]]:
    # The day comes first in the key: without it every day's partition would be searched.
    return [SampleRow.day == attempt.leased_at.date(), SampleRow.attempt_id == attempt.id]


def extent(
    session: Session,
    attempt: AttemptRow,
    ranks: Sequence[int],
    bounds: Sequence[ColumnElement[bool]] = (),
) -> tuple[int, int] | None:
    """Return the first and the last tick of these ranks; None without samples.

    Asked rank by rank, each end is one look into the key, however long the series is.
    """
    if not ranks:
        return None
    ends = [
        select(end(SampleRow.tick))
        .where(*_of(attempt), SampleRow.rank == rank, *bounds)
        .scalar_subquery()
        for end in (func.min, func.max)
        for rank in ranks
    ]
    found = [tick for tick in session.execute(select(*ends)).one() if tick is not None]
    return (min(found), max(found)) if found else None


def _samples(session: Session, which: Sequence[ColumnElement[bool]]) -> dict[int, RankRanges]:
    columns = [plausible(name) for name in (*CHARTED, *_STORED_DISTURBANCES)]
    rows = session.execute(
        select(
            SampleRow.rank,
            SampleRow.tick,
            SampleRow.span_ticks,
            plausible("machine_cpu_ratio"),
            SampleRow.extra,
            *columns,
        )
        .where(*which)
        .order_by(SampleRow.rank, SampleRow.tick)
    ).all()
    widths = _widths([(row.rank, row.span_ticks) for row in rows], least=1)
    series = {rank: RankRanges(width_ticks=width) for rank, width in widths.items()}
    for row in rows:
        one = series[row.rank]
        one.first_ticks.append(row.tick)
        one.last_ticks.append(row.tick)
        for name in CHARTED:
            one.lows[name].append(getattr(row, name))
        for name in (*CHARTED, *_STORED_DISTURBANCES):
            one.highs[name].append(getattr(row, name))
        one.highs[FOREIGN_LOAD.name].append(_foreign(row))
    return series


def _foreign(row: Row[Any]) -> float | None:
    return foreign_load_ratio(
        Sample(
            tick=row.tick,
            machine_cpu_ratio=row.machine_cpu_ratio,
            cpu_ratio=row.cpu_ratio,
            extra=row.extra or {},
        )
    )


def _ranges(
    session: Session, which: Sequence[ColumnElement[bool]], *, begin: int, width: int
) -> dict[int, RankRanges]:
    charted = [plausible(name) for name in CHARTED]
    disturbances = [plausible(name) for name in _STORED_DISTURBANCES]
    first = func.min(SampleRow.tick)
    rows = session.execute(
        select(
            SampleRow.rank,
            first,
            func.max(SampleRow.tick),
            func.max(SampleRow.span_ticks),
            *(func.min(column) for column in charted),
            *(func.max(column) for column in (*charted, *disturbances)),
            func.max(plausible("machine_cpu_ratio") - plausible("cpu_ratio")),
        )
        .where(*which)
        .group_by(SampleRow.rank, SampleRow.tick - (SampleRow.tick - begin) % width)
        .order_by(SampleRow.rank, first)
    ).all()
    widths = _widths([(row[0], row[3]) for row in rows], least=width)
    series = {rank: RankRanges(width_ticks=longest) for rank, longest in widths.items()}
    for rank, first_tick, last_tick, _, *values in rows:
        ranges = series[rank]
        ranges.first_ticks.append(first_tick)
        ranges.last_ticks.append(last_tick)
        for name, value in zip(CHARTED, values, strict=False):
            ranges.lows[name].append(value)
        highs = zip((*CHARTED, *DISTURBANCES), values[len(CHARTED) :], strict=True)
        for name, value in highs:
            # The trainers' share and the machine's are not read in one instant.
            is_below = name == FOREIGN_LOAD.name and value is not None and value < 0
            ranges.highs[name].append(0.0 if is_below else value)
    return series


def _widths(spans: Sequence[tuple[int, int]], *, least: int) -> dict[int, int]:
    widths: dict[int, int] = {}
    for rank, span in spans:
        widths[rank] = max(widths.get(rank, least), span)
    return widths


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSeries:
    """Means over the ranks of a role by metric: (tick, value), None if not measured."""

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
