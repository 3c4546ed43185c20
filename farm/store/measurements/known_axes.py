"""Reads the origins of measurements, and which values of each axis they have."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from farm.store.result_tables import MEASUREMENTS, MeasurementRow

_MOST_COMBINATIONS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAxes:
    """Each in ascending order; `workloads` are models with their data sets, None: not named.

    `has_unnamed_type`: some of it was measured on machines whose instance type is not known.
    """

    workloads: tuple[tuple[str | None, str | None], ...]
    strategies: tuple[str, ...]
    instance_types: tuple[str, ...]
    has_unnamed_type: bool
    world_sizes: tuple[int, ...]
    global_batch_sizes: tuple[int, ...]
    one_way_delays_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHardware:
    """One kind of hardware of an origin, and how much was measured on it."""

    fingerprint: str | None
    instance_type: str | None
    measurement_count: int


def known_axes(session: Session, origin: str) -> KnownAxes:
    """Return the values that the origin's measurements have, of whatever status."""
    row = MEASUREMENTS
    columns = (
        *(row.model, row.dataset, row.strategy, row.instance_type),
        *(row.world_size, row.global_batch_size, row.one_way_delay_s),
    )
    found = session.execute(
        select(*columns).where(row.origin == origin).distinct().limit(_MOST_COMBINATIONS)
    ).all()
    # Column by column: thousands of rows one by one take longer than the query.
    values = list(zip(*found, strict=True)) or [() for _ in columns]
    models, datasets, strategies, types, *numbers = values
    world_sizes, global_batch_sizes, one_way_delays_s = (tuple(sorted(set(n))) for n in numbers)
    workloads = set(zip(models, datasets, strict=True))
    return KnownAxes(
        workloads=tuple(sorted(workloads, key=lambda w: (w[0] or "", w[1] or ""))),
        strategies=tuple(sorted(filter(None, set(strategies)))),
        instance_types=tuple(sorted(filter(None, set(types)))),
        has_unnamed_type=not all(set(types)),
        world_sizes=world_sizes,
        global_batch_sizes=global_batch_sizes,
        one_way_delays_s=one_way_delays_s,
    )


def hardware_of(session: Session, origin: str) -> list[MeasuredHardware]:
    """Return the kinds of hardware of an origin, that with the most measurements first."""
    row = MeasurementRow
    counted = func.count().label("measurement_count")
    found = session.execute(
        select(row.fingerprint, row.instance_type, counted)
        .where(row.origin == origin)
        .group_by(row.fingerprint, row.instance_type)
        .order_by(counted.desc(), row.fingerprint, row.instance_type)
    )
    return [
        MeasuredHardware(fingerprint=fingerprint, instance_type=kind, measurement_count=count)
        for fingerprint, kind, count in found
    ]
