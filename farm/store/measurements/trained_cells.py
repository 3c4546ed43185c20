"""Reads the cells of a sweep that trained by epochs, with their accuracies. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from farm.measuring.learning_curves import LearningCurve
from farm.measuring.measurement import OK
from farm.store.engine import IDS_A_QUERY
from farm.store.measurements.cell_rows import specs_of
from farm.store.measurements.repetitions import BY_CELL
from farm.store.result_tables import MEASUREMENTS, EpochRow, MeasurementRow
from farm.store.tables import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCell:
    """`spec`: of its first job, as stored; `curves`: of its repetitions, by job."""

    spec: Mapping[str, Any]
    instance_type: str | None
    job_ids: tuple[int, ...]
    curves: tuple[LearningCurve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCells:
    """`is_complete`: none is left out."""

    cells: tuple[TrainedCell, ...]
    is_complete: bool


def trained_cells(session: Session, sweep_id: int, *, max_jobs: int) -> TrainedCells:
    """Return the cells with an accuracy after each epoch, like next to like.

    Hardware is not pooled: a cell measured on several kinds is several here. Of more than
    `max_jobs` jobs the first whole cells.
    """
    rows = session.execute(
        select(
            JobRow.id,
            JobRow.cell_hash,
            MeasurementRow.attempt_id,
            MeasurementRow.fingerprint,
            MeasurementRow.instance_type,
        )
        .join(MeasurementRow, MeasurementRow.job_id == JobRow.id)
        .where(
            JobRow.sweep_id == sweep_id,
            MeasurementRow.status == OK,
            MEASUREMENTS.epochs.is_not(None),
            MeasurementRow.attempt_id.is_not(None),
        )
        .order_by(*BY_CELL)
        .limit(max_jobs + 1)
    ).all()
    is_complete = len(rows) <= max_jobs
    if not is_complete:
        rows = [row for row in rows if row.cell_hash != rows[-1].cell_hash]
    curves = learning_curves(session, {row.attempt_id for row in rows})
    groups: dict[tuple[str, str | None], list[Any]] = {}
    for row in rows:
        if row.attempt_id in curves:
            groups.setdefault((row.cell_hash, row.fingerprint), []).append(row)
    specs = specs_of(session, [group[0].id for group in groups.values()])
    cells = tuple(
        TrainedCell(
            spec=specs[group[0].id],
            instance_type=group[0].instance_type,
            job_ids=tuple(row.id for row in group),
            curves=tuple(curves[row.attempt_id] for row in group),
        )
        for group in groups.values()
    )
    return TrainedCells(cells=cells, is_complete=is_complete)


def accuracy_curves(session: Session, attempt_ids: Collection[int]) -> dict[int, tuple[float, ...]]:
    """Return by attempt rank 0's accuracy on the test set after each of its epochs.

    An attempt that lacks one of them has no curve.
    """
    found = learning_curves(session, attempt_ids)
    return {attempt_id: curve.accuracy_ratios for attempt_id, curve in found.items()}


def learning_curves(session: Session, attempt_ids: Collection[int]) -> dict[int, LearningCurve]:
    """Return the same with how long each epoch took: as long as on the slowest of its ranks.

    Ranks that do not wait for each other end an epoch one after another, and the accuracy is that
    of all of them.
    """
    ids = sorted(attempt_ids)
    found: dict[int, list[tuple[float, float | None]]] = {}
    for begin in range(0, len(ids), IDS_A_QUERY):
        rows = session.execute(
            select(
                EpochRow.attempt_id,
                func.max(EpochRow.train_s),
                func.max(case((EpochRow.rank == 0, EpochRow.val_accuracy_ratio))),
            )
            .where(EpochRow.attempt_id.in_(ids[begin : begin + IDS_A_QUERY]))
            .group_by(EpochRow.attempt_id, EpochRow.epoch)
            # Of a running attempt other ranks may be epochs ahead.
            .having(func.min(EpochRow.rank) == 0)
            .order_by(EpochRow.attempt_id, EpochRow.epoch)
        )
        for attempt_id, train_s, accuracy in rows:
            found.setdefault(attempt_id, []).append((train_s, accuracy))
    curves = {}
    for attempt_id, epochs in found.items():
        known = tuple(accuracy for _, accuracy in epochs if accuracy is not None)
        if len(known) == len(epochs):
            times_s = tuple(train_s for train_s, _ in epochs)
            curves[attempt_id] = LearningCurve(train_s=times_s, accuracy_ratios=known)
    return curves
