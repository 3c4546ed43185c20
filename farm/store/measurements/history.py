"""Reads what one cell has measured in all sweeps, and on which software. Reads only.

Imported measurements belong to no job, and so to no cell.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from farm.configuration.scripts import script_of, without_version
from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec, NotFound
from farm.measuring.measurement import OK, OWN_ORIGIN
from farm.store.engine import IDS_A_QUERY
from farm.store.measurements.cell_rows import jobs_with_results
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.tables import JobRow, SweepRow
from farm.values.codec import from_json

# Of one sweep: its latest.
MOST_REPETITIONS = 100
# Of all commands of the same scripts: those that were measured last.
_MOST_COMMANDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDays:
    """When a cell was measured: how often, and on how many days by UTC.

    `job_id`: a job of it in the sweep that was asked for.
    """

    job_id: int
    spec: Mapping[str, Any]
    day_count: int
    measurement_count: int
    first_at: dt.datetime
    last_at: dt.datetime


def find_job(session: Session, job_id: int) -> JobRow:
    """Return a job. Raises NotFound: it does not exist."""
    job = session.get(JobRow, job_id)
    if job is None:
        raise NotFound(f"job {job_id} does not exist")
    return job


def same_cells(session: Session, jobs: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return by the hash of each cell to which of the given cells it belongs, by that one's hash.

    `jobs`: the hash and the specification of each. Cells are the same where they differ in nothing
    but the version of their script.
    """
    found: dict[str, str] = {}
    scripts: dict[str, JobSpec] = {}
    for cell_hash, stored in jobs:
        found[cell_hash] = cell_hash
        if script_of(stored.get("model") or "") is not None:
            try:
                scripts[cell_hash] = from_json(JobSpec, stored)
            except InvalidSpec:
                continue  # another version of the farm wrote it
    by_command: dict[str, list[str]] = {}
    for model in _measured_commands(session, {spec.model for spec in scripts.values()}):
        by_command.setdefault(without_version(model), []).append(model)
    for cell_hash, spec in scripts.items():
        for model in by_command.get(without_version(spec.model), ()):
            found.setdefault(dataclasses.replace(spec, model=model).cell_hash, cell_hash)
    return found


def sweeps_with_cell(
    session: Session, cell_hashes: Collection[str], *, before_id: int | None, limit: int
) -> Sequence[int]:
    """Return the ids of sweeps with jobs of these cells, the newest first."""
    query = select(JobRow.sweep_id).where(JobRow.cell_hash.in_(cell_hashes)).distinct()
    if before_id is not None:
        query = query.where(JobRow.sweep_id < before_id)
    return session.scalars(query.order_by(JobRow.sweep_id.desc()).limit(limit)).all()


def sweeps_of(session: Session, sweep_ids: Collection[int]) -> dict[int, SweepRow]:
    """Return sweeps by their ids."""
    rows = session.scalars(select(SweepRow).where(SweepRow.id.in_(sweep_ids)))
    return {sweep.id: sweep for sweep in rows}


def jobs_of_cell(
    session: Session, cell_hashes: Collection[str], sweep_ids: Collection[int]
) -> Sequence[Any]:
    """Return the latest 100 jobs of these cells in each of the sweeps, by ascending id.

    With the columns of `jobs_with_results`, `sweep_id`, `model` of the job, and `created_at` and
    `benchfarm_version`, of rank 0, of the measurement.
    """
    number = func.row_number().over(partition_by=JobRow.sweep_id, order_by=JobRow.id.desc())
    newest = (
        select(JobRow.id, number.label("number"))
        .where(JobRow.cell_hash.in_(cell_hashes), JobRow.sweep_id.in_(sweep_ids))
        .subquery()
    )
    ids = session.scalars(
        select(newest.c.id).where(newest.c.number <= MOST_REPETITIONS).order_by(newest.c.id)
    ).all()
    version = MeasurementRow.details[("hardware", 0, "benchfarm_version")].as_string()
    rows: list[Any] = []
    # By their ids, or a database may read all that the sweeps have measured.
    for begin in range(0, len(ids), IDS_A_QUERY):
        query = jobs_with_results(
            JobRow.id.in_(ids[begin : begin + IDS_A_QUERY]),
            _column(JobRow.sweep_id),
            JobRow.model.label("command"),
            _column(MeasurementRow.created_at),
            version.label("benchfarm_version"),
        )
        rows += session.execute(query.order_by(JobRow.id)).all()
    return rows


def details_of(
    session: Session, measurement_ids: Sequence[int]
) -> dict[int, tuple[Any, str | None]]:
    """Return by measurement the hardware of its ranks, and the sha256 of its model's file."""
    details = MeasurementRow.details
    found: dict[int, tuple[Any, str | None]] = {}
    for begin in range(0, len(measurement_ids), IDS_A_QUERY):
        some = measurement_ids[begin : begin + IDS_A_QUERY]
        rows = session.execute(
            select(
                MeasurementRow.id, details["hardware"], details["model_sha256"].as_string()
            ).where(MeasurementRow.id.in_(some))
        )
        found |= {row_id: (hardware, sha256) for row_id, hardware, sha256 in rows}
    return found


def cells_over_days(session: Session, sweep_id: int, *, limit: int) -> Sequence[MeasuredDays]:
    """Return the cells of a sweep that were measured on several days, the first `limit` by job."""
    first = (
        select(func.min(JobRow.id)).where(JobRow.sweep_id == sweep_id).group_by(JobRow.cell_hash)
    )
    own = session.execute(
        select(JobRow.id, JobRow.cell_hash, JobRow.spec)
        .where(JobRow.id.in_(first))
        .order_by(JobRow.id)
    ).all()
    cells = same_cells(session, ((job.cell_hash, job.spec) for job in own))
    at = MeasurementRow.created_at
    # By cell and day: a day of a cell may have thousands of measurements.
    found: dict[str, dict[str, tuple[int, dt.datetime, dt.datetime]]] = {}
    hashes = list(cells)
    for begin in range(0, len(hashes), IDS_A_QUERY):
        rows = session.execute(
            select(JobRow.cell_hash, func.date(at), func.count(), func.min(at), func.max(at))
            .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
            .where(
                JobRow.cell_hash.in_(hashes[begin : begin + IDS_A_QUERY]),
                MeasurementRow.status == OK,
            )
            .group_by(JobRow.cell_hash, func.date(at))
        )
        for cell_hash, day, count, first_at, last_at in rows:
            days = found.setdefault(cells[cell_hash], {})
            known = days.get(str(day), (0, first_at, last_at))
            days[str(day)] = (known[0] + count, min(known[1], first_at), max(known[2], last_at))
    return [
        MeasuredDays(
            job_id=job.id,
            spec=job.spec,
            day_count=len(days),
            measurement_count=sum(count for count, _, _ in days.values()),
            first_at=min(first_at for _, first_at, _ in days.values()),
            last_at=max(last_at for _, _, last_at in days.values()),
        )
        for job in own
        if len(days := found.get(job.cell_hash, {})) > 1
    ][:limit]


def _measured_commands(session: Session, models: Collection[str]) -> Sequence[str]:
    """Return the commands of all versions of these commands' scripts, those of late first."""
    if not models:
        return ()
    heads = {f"{model.partition(':')[0]}:{script_of(model)}" for model in models}
    model = MEASUREMENTS.model
    rows = session.scalars(
        select(model)
        .where(
            MeasurementRow.origin == OWN_ORIGIN,
            or_(*(model.startswith(head, autoescape=True) for head in sorted(heads)[:IDS_A_QUERY])),
        )
        .group_by(model)
        .order_by(func.max(MeasurementRow.id).desc())
        .limit(_MOST_COMMANDS)
    )
    return [command for command in rows if command is not None]


def _column(attribute: Any) -> ColumnElement[Any]:
    column: ColumnElement[Any] = attribute.expression
    return column
