"""How accurate trainings got, epoch by epoch."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.store.result_tables import EpochRow

_IDS_A_QUERY = 1000  # databases limit the parameters of one statement


def accuracy_curves(session: Session, attempt_ids: Collection[int]) -> dict[int, tuple[float, ...]]:
    """Return by attempt rank 0's accuracy on the test set after each of its epochs.

    An attempt that lacks one of them has no curve.
    """
    ids = sorted(attempt_ids)
    found: dict[int, list[float | None]] = {}
    for begin in range(0, len(ids), _IDS_A_QUERY):
        rows = session.execute(
            select(EpochRow.attempt_id, EpochRow.val_accuracy_ratio)
            .where(EpochRow.attempt_id.in_(ids[begin : begin + _IDS_A_QUERY]), EpochRow.rank == 0)
            .order_by(EpochRow.attempt_id, EpochRow.epoch)
        )
        for attempt_id, accuracy in rows:
            found.setdefault(attempt_id, []).append(accuracy)
    return {
        attempt_id: tuple(known)
        for attempt_id, curve in found.items()
        if len(known := [value for value in curve if value is not None]) == len(curve)
    }
