"""Finds measurements to compare a job with: repetitions, and those one axis apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES, STRATEGY, spec_values
from farm.configuration.axis import Axis, AxisKind, Value
from farm.configuration.spec import EMULATOR_NAMES, TCP_PROXY, UNTOUCHED, JobSpec
from farm.measuring.measurement import OK, OWN_ORIGIN
from farm.measuring.noise import Disturbance, disturbance_of_row
from farm.store.base import is_known
from farm.store.result_tables import MEASUREMENTS, MeasurementRow, axis_column, axis_value
from farm.store.tables import JobRow

_MOST_NEIGHBOURS = 500


def _column(axis: Axis) -> ColumnElement[Any]:
    """Return the axis' value of a measurement, as jobs have it; older ones have what was then."""
    if axis.kind is AxisKind.LINK:
        # What made a network is no name of one.
        stored = axis_column(axis)
        name = func.replace(stored, f"+{TCP_PROXY}", "")
        return case((stored.not_in((*EMULATOR_NAMES, UNTOUCHED)), name))
    column = axis_value(axis)
    return case((MEASUREMENTS.server_count > 0, column)) if axis.is_of_servers else column


# What one machine and a gang must have in common; what comes with a strategy; and the rest.
_IN_COMMON = [
    axis for axis in AXES if axis.is_of_work or (axis.kind is AxisKind.SETUP and axis.holds_alone)
]
_OF_STRATEGY = [
    axis
    for axis in AXES
    if axis.kind is AxisKind.SETUP and not axis.holds_alone and not axis.is_of_every_strategy
]
_REST = [
    axis
    for axis in AXES
    if axis not in (*_IN_COMMON, *_OF_STRATEGY, STRATEGY) and not axis.is_of_model
]
_COLUMNS: Mapping[str, ColumnElement[Any]] = {axis.field: _column(axis) for axis in AXES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A measurement of the farm whose configuration differs from a job's in one axis.

    `values`: of every axis, by its field. `network`: what made it.
    """

    values: Mapping[str, Value]
    job_id: int
    network: str | None
    fingerprint: str | None
    step_time_s: float
    throughput_examples_per_s: float | None
    disturbance: Disturbance


def repetitions_of(session: Session, job: JobRow, *, limit: int) -> Sequence[Any]:
    """Return the jobs of a job's cell, itself among them, in whatever sweep, the latest first.

    Of each its id, sweep_id, repetition and state, and the measured step_time_s,
    throughput_examples_per_s, fingerprint and flags, None where it was not measured.
    """
    return session.execute(
        select(
            JobRow.id,
            JobRow.sweep_id,
            JobRow.repetition,
            JobRow.state,
            MEASUREMENTS.step_time_s,
            MEASUREMENTS.throughput_examples_per_s,
            MeasurementRow.fingerprint,
            MeasurementRow.flags,
        )
        .outerjoin(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(JobRow.cell_hash == job.cell_hash)
        .order_by(JobRow.id.desc())
        .limit(limit)
    ).all()


def neighbours_of(
    session: Session, spec: JobSpec, *, fingerprint: str | None
) -> Sequence[Neighbour]:
    """Return the latest measurements with one axis changed, at most `_MOST_NEIGHBOURS`.

    `fingerprint`: on this hardware alone; None leaves it open. One machine has no network and a
    strategy of its own, so from or to one machine only what also one rank has must be the same,
    such as batch size, pass and precision. Another strategy has other settings, so these are the
    same axis; rows that are older than a setting have what it was then.
    """
    query = select(MeasurementRow).where(
        MeasurementRow.origin == OWN_ORIGIN,
        MEASUREMENTS.model == spec.model,
        MEASUREMENTS.dataset == spec.dataset,
        MeasurementRow.status == OK,
        is_known(MEASUREMENTS.step_time_s),
        MeasurementRow.job_id.is_not(None),
        _differences(spec) == 1,
    )
    if fingerprint is not None:
        query = query.where(MeasurementRow.fingerprint == fingerprint)
    columns = query.with_only_columns(
        MeasurementRow.job_id,
        MEASUREMENTS.network,
        MeasurementRow.fingerprint,
        MEASUREMENTS.step_time_s,
        MEASUREMENTS.throughput_examples_per_s,
        MeasurementRow.flags,
        *(column.label(f"axis_{field}") for field, column in _COLUMNS.items()),
    )
    rows = session.execute(columns.order_by(MeasurementRow.id.desc()).limit(_MOST_NEIGHBOURS))
    return [_neighbour(row) for row in rows]


def _differences(spec: JobSpec) -> Any:
    """Count the axes in which a measurement differs from a job."""
    values = spec_values(spec)

    def differs(axes: Iterable[Axis]) -> Any:
        return sum(
            case((_COLUMNS[axis.field].is_distinct_from(values[axis.field]), 1), else_=0)
            for axis in axes
        )

    in_common = differs(_IN_COMMON)
    # Another strategy has other settings, which are the same axis.
    is_other = MEASUREMENTS.strategy.is_distinct_from(spec.strategy)
    of_strategy = case((is_other, 1), else_=differs(_OF_STRATEGY))
    by_all = in_common + of_strategy + differs(_REST)
    is_alone = MEASUREMENTS.world_size == 1
    return in_common if spec.world_size == 1 else case((is_alone, in_common), else_=by_all)


def _neighbour(row: Any) -> Neighbour:
    return Neighbour(
        values={field: getattr(row, f"axis_{field}") for field in _COLUMNS},
        job_id=row.job_id,
        network=row.network,
        fingerprint=row.fingerprint,
        step_time_s=row.step_time_s,
        throughput_examples_per_s=row.throughput_examples_per_s,
        disturbance=disturbance_of_row(row),
    )
