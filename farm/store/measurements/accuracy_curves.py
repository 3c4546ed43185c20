"""How accurate trainings got, epoch by epoch."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from farm.measuring.learning_curves import LearningCurve
from farm.store.engine import IDS_A_QUERY
from farm.store.result_tables import EpochRow


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
