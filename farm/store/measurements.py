"""Measurements: one row for each finished job or imported cell, read by everything that compares.

Rows of different origins or fingerprints are told apart here and never pooled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from farm.store.result_tables import MeasurementRow
from farm.store.tables import Job

_BYTES_PER_S_IN_ONE_MBIT_PER_S = 125_000
_IDS_A_QUERY = 1000  # databases limit the parameters of one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which measurements are meant; None leaves a column open."""

    origin: str | None = None
    model: str | None = None
    dataset: str | None = None
    training_pass: str | None = None
    strategy: str | None = None
    instance_type: str | None = None
    fingerprint: str | None = None
    world_size: int | None = None
    global_batch_size: int | None = None
    one_way_delay_s: float | None = None
    status: str | None = None
    sweep_id: int | None = None  # leaves out imported ones


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """What measurements of one cell have in common: all but repetition, seed and time."""

    model: str | None
    dataset: str | None
    training_pass: str
    framework: str | None
    strategy: str | None
    placement: str | None
    network: str | None
    instance_type: str | None
    fingerprint: str | None
    world_size: int
    server_count: int
    global_batch_size: int
    one_way_delay_s: float
    bandwidth_bytes_per_s: float | None
    packet_loss_ratio: float
    jitter_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The measurements that share a key, by id: repetitions, failed ones among them."""

    key: CellKey
    measurements: tuple[MeasurementRow, ...]


def insert_measurement(session: Session, **values: Any) -> int:
    """Store one measurement, by the columns of `MeasurementRow`, and return its id."""
    row = MeasurementRow(**values)
    session.add(row)
    session.flush()
    return row.id


def list_measurements(
    session: Session, which: Filter, *, after_id: int | None = None, limit: int = 100
) -> Sequence[MeasurementRow]:
    """Return measurements by ascending id; `after_id` goes on from a page's last."""
    query = _select(which).limit(limit)
    if after_id is not None:
        query = query.where(MeasurementRow.id > after_id)
    return session.scalars(query).all()


def flags_by_job(session: Session, job_ids: Sequence[int]) -> dict[int, list[dict[str, str]]]:
    """Return job to what disturbed its measurement, for those of a page's jobs that have one."""
    found: dict[int, list[dict[str, str]]] = {}
    for begin in range(0, len(job_ids), _IDS_A_QUERY):
        page = job_ids[begin : begin + _IDS_A_QUERY]
        rows = session.execute(
            select(MeasurementRow.job_id, MeasurementRow.flags).where(
                MeasurementRow.job_id.in_(page)
            )
        )
        found |= {job_id: flags for job_id, flags in rows if job_id is not None}
    return found


def cells(session: Session, which: Filter) -> list[Cell]:
    """Return the measurements grouped by cell, in the order of their first ids.

    Kinds of hardware stay apart; so do origins if the filter names one, and it should.
    """
    groups: dict[CellKey, list[MeasurementRow]] = {}
    for row in session.scalars(_select(which)):
        groups.setdefault(_cell_key(row), []).append(row)
    return [Cell(key=key, measurements=tuple(rows)) for key, rows in groups.items()]


EXPORT_COLUMNS = (
    "model",
    "dataset",
    "pass",
    "framework",
    "strategy",
    "placement",
    "network",
    "instance_type",
    "world_size",
    "server_count",
    "global_batch_size",
    "one_way_delay_ms",
    "jitter_ms",
    "bandwidth_mbit_per_s",
    "packet_loss_percent",
    "step_time_s",
    "step_time_spread_s",
    "steps_per_epoch",
    "time_per_epoch_s",
    "epochs",
    "accuracy",
    "status",
    "repetition",
    "fingerprint",
)


def export_rows(session: Session, sweep_id: int) -> list[dict[str, object]]:
    """Return a sweep's measurements as rows of `EXPORT_COLUMNS`, by job.

    Delays are in milliseconds, bandwidths in megabits per second and losses in percent, as in
    every file that people read; what was not measured is None.
    """
    rows = session.scalars(_select(Filter(sweep_id=sweep_id)).order_by(None).order_by(Job.id))
    return [_export(row) for row in rows]


def _select(which: Filter) -> Select[MeasurementRow]:
    query = select(MeasurementRow).order_by(MeasurementRow.id)
    wanted = {f.name: getattr(which, f.name) for f in dataclasses.fields(which)}
    sweep_id = wanted.pop("sweep_id")
    if sweep_id is not None:
        query = query.join(Job, Job.id == MeasurementRow.job_id).where(Job.sweep_id == sweep_id)
    for column, value in wanted.items():
        if value is not None:
            query = query.where(getattr(MeasurementRow, column) == value)
    return query


def _cell_key(row: MeasurementRow) -> CellKey:
    names: Iterable[str] = (f.name for f in dataclasses.fields(CellKey))
    return CellKey(**{name: getattr(row, name) for name in names})


def _export(row: MeasurementRow) -> dict[str, object]:
    # Rounded to a billionth, or 0.00397 s would be written as 3.9699999999999998 ms.
    bandwidth = row.bandwidth_bytes_per_s
    edge: dict[str, object] = {
        "pass": row.training_pass,
        "one_way_delay_ms": round(row.one_way_delay_s * 1000, 9),
        "jitter_ms": round(row.jitter_s * 1000, 9),
        "bandwidth_mbit_per_s": (
            None if bandwidth is None else bandwidth / _BYTES_PER_S_IN_ONE_MBIT_PER_S
        ),
        "packet_loss_percent": round(row.packet_loss_ratio * 100, 9),
    }
    return {
        column: edge[column] if column in edge else getattr(row, column)
        for column in EXPORT_COLUMNS
    }
