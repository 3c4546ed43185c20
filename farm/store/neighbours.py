"""What a job is to be compared with: its repetitions, and what differs from it in one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from farm.core.measurement import OK
from farm.core.spec import EMULATORS, TCP_PROXY, UNTOUCHED, JobSpec, NetworkProfile
from farm.store.base import is_known
from farm.store.outcomes import ORIGIN
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Job

_MOST_NEIGHBOURS = 500

_row = MeasurementRow
# Settings of a job by their names there, as measurements have them; older ones say nothing.
_SETTINGS: Mapping[str, ColumnElement[Any]] = {
    "server_count": _row.server_count.expression,
    "server_placement": case(
        (_row.server_count > 0, func.coalesce(_row.server_placement, "collocated"))
    ),
    "replicas_per_rank": func.coalesce(_row.replicas_per_rank, 1),
    "steps_between_averages": func.coalesce(_row.steps_between_averages, 1),
    "placement": func.coalesce(_row.placement, "soft"),
    "batch_split": func.coalesce(_row.batch_split, "even"),
    # What made a network is no name of one.
    "interface": case(
        (
            _row.network.not_in((*EMULATORS, UNTOUCHED)),
            func.replace(_row.network, f"+{TCP_PROXY}", ""),
        )
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A measurement of the farm whose configuration differs from a job's in one axis."""

    job_id: int
    strategy: str | None
    world_size: int
    server_count: int
    server_placement: str | None = None
    replicas_per_rank: int = 1
    steps_between_averages: int = 1
    placement: str = "soft"
    batch_split: str = "even"
    interface: str | None = None
    training_pass: str = "forward_backward"
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
    strategy of its own, so from or to one machine only batch size and pass must be the same.
    Another strategy has other settings, so these are the same axis; rows that are older than a
    setting have what it was then.
    """
    query = select(MeasurementRow).where(
        MeasurementRow.origin == ORIGIN,
        MeasurementRow.model == spec.model,
        MeasurementRow.dataset == spec.dataset,
        MeasurementRow.status == OK,
        is_known(MeasurementRow.step_time_s),
        MeasurementRow.job_id.is_not(None),
        _differences(spec) == 1,
    )
    if fingerprint is not None:
        query = query.where(MeasurementRow.fingerprint == fingerprint)
    columns = query.with_only_columns(
        MeasurementRow.job_id,
        MeasurementRow.training_pass,
        MeasurementRow.strategy,
        MeasurementRow.world_size,
        *(column.label(name) for name, column in _SETTINGS.items()),
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


def _differences(spec: JobSpec) -> Any:
    """Count the axes in which a measurement differs from a job."""
    network = spec.network or NetworkProfile()
    servers_are = spec.server_placement.value if spec.server_count else None
    of_strategy = (
        _differs(_SETTINGS["server_count"], spec.server_count)
        + _differs(_SETTINGS["server_placement"], servers_are)
        + _differs(_SETTINGS["replicas_per_rank"], spec.replicas_per_rank)
        + _differs(_SETTINGS["steps_between_averages"], spec.steps_between_averages)
    )
    strategy = MeasurementRow.strategy.is_distinct_from(spec.strategy)
    batch = _differs(MeasurementRow.global_batch_size, spec.global_batch_size)
    passed = _differs(MeasurementRow.training_pass, spec.training_pass.value)
    by_size = batch + passed + _differs(MeasurementRow.world_size, spec.world_size)
    by_all = by_size + case((strategy, 1), else_=of_strategy)
    for column, value in (
        (_SETTINGS["placement"], spec.placement.value),
        (_SETTINGS["batch_split"], spec.batch_split.value),
        (_SETTINGS["interface"], spec.interface),
        (MeasurementRow.one_way_delay_s, network.one_way_delay_s),
        (MeasurementRow.jitter_s, network.jitter_s),
        (MeasurementRow.packet_loss_ratio, network.packet_loss_ratio),
        (MeasurementRow.bandwidth_bytes_per_s, network.bandwidth_bytes_per_s),
    ):
        by_all = by_all + _differs(column, value)
    is_alone = MeasurementRow.world_size == 1
    return by_size if spec.world_size == 1 else case((is_alone, by_size), else_=by_all)


def _neighbour(row: Any) -> Neighbour:
    values = dict(row._mapping)
    return Neighbour(is_disturbed=bool(values.pop("flags")), **values)


def _differs(column: Any, value: object) -> Any:
    return case((column.is_distinct_from(value), 1), else_=0)
