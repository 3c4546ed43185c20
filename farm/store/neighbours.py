"""What a job is to be compared with: its repetitions, and what differs from it in one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from farm.core.measurement import OK
from farm.core.spec import JobSpec, NetworkProfile
from farm.store.outcomes import ORIGIN
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Job

_MOST_NEIGHBOURS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A measurement of the farm whose configuration differs from a job's in one axis."""

    job_id: int
    strategy: str | None
    world_size: int
    server_count: int
    global_batch_size: int
    one_way_delay_s: float
    jitter_s: float
    packet_loss_ratio: float
    bandwidth_bytes_per_s: float | None
    network: str | None
    fingerprint: str | None
    step_time_s: float
    throughput_examples_per_s: float | None
    is_disturbed: bool


def repetitions_of(session: Session, job: Job, *, limit: int) -> Sequence[Any]:
    """Return the jobs of a job's cell, itself among them, in whatever sweep, the latest first.

    Of each its id, sweep_id, repetition and state, and the measured step_time_s,
    throughput_examples_per_s, fingerprint and flags, None where it was not measured.
    """
    return session.execute(
        select(
            Job.id,
            Job.sweep_id,
            Job.repetition,
            Job.state,
            MeasurementRow.step_time_s,
            MeasurementRow.throughput_examples_per_s,
            MeasurementRow.fingerprint,
            MeasurementRow.flags,
        )
        .outerjoin(MeasurementRow, MeasurementRow.job_id == Job.id)
        .where(Job.cell_hash == job.cell_hash)
        .order_by(Job.id.desc())
        .limit(limit)
    ).all()


def neighbours_of(
    session: Session, spec: JobSpec, *, fingerprint: str | None
) -> Sequence[Neighbour]:
    """Return what was measured with one axis changed, the latest first, and so many at most.

    `fingerprint`: on this hardware alone; None leaves it open. One machine has no network and a
    strategy of its own, so from or to one machine only the batch size must be the same.
    """
    network = spec.network or NetworkProfile()
    batch = _differs(MeasurementRow.global_batch_size, spec.global_batch_size)
    by_size = batch + _differs(MeasurementRow.world_size, spec.world_size)
    by_all = by_size
    for column, value in (
        (MeasurementRow.strategy, spec.strategy),
        (MeasurementRow.server_count, spec.server_count),
        (MeasurementRow.one_way_delay_s, network.one_way_delay_s),
        (MeasurementRow.jitter_s, network.jitter_s),
        (MeasurementRow.packet_loss_ratio, network.packet_loss_ratio),
        (MeasurementRow.bandwidth_bytes_per_s, network.bandwidth_bytes_per_s),
    ):
        by_all = by_all + _differs(column, value)
    is_alone = MeasurementRow.world_size == 1
    count = by_size if spec.world_size == 1 else case((is_alone, by_size), else_=by_all)
    query = select(MeasurementRow).where(
        MeasurementRow.origin == ORIGIN,
        MeasurementRow.model == spec.model,
        MeasurementRow.dataset == spec.dataset,
        MeasurementRow.training_pass == spec.training_pass.value,
        MeasurementRow.status == OK,
        MeasurementRow.step_time_s.is_not(None),
        MeasurementRow.job_id.is_not(None),
        count == 1,
    )
    if fingerprint is not None:
        query = query.where(MeasurementRow.fingerprint == fingerprint)
    columns = query.with_only_columns(
        MeasurementRow.job_id,
        MeasurementRow.strategy,
        MeasurementRow.world_size,
        MeasurementRow.server_count,
        MeasurementRow.global_batch_size,
        MeasurementRow.one_way_delay_s,
        MeasurementRow.jitter_s,
        MeasurementRow.packet_loss_ratio,
        MeasurementRow.bandwidth_bytes_per_s,
        MeasurementRow.network,
        MeasurementRow.fingerprint,
        MeasurementRow.step_time_s,
        MeasurementRow.throughput_examples_per_s,
        MeasurementRow.flags,
    )
    rows = session.execute(columns.order_by(MeasurementRow.id.desc()).limit(_MOST_NEIGHBOURS))
    return [_neighbour(row) for row in rows]


def _neighbour(row: Any) -> Neighbour:
    values = dict(row._mapping)
    return Neighbour(is_disturbed=bool(values.pop("flags")), **values)


def _differs(column: Any, value: object) -> Any:
    return case((column.is_distinct_from(value), 1), else_=0)
