"""Measured accuracy of a training, and the epochs that it took.

Synchronous replicas compute the same gradient. With the same global batch size, neither the number
of machines nor the network changes what is learned in an epoch. So if a configuration itself was
not trained, the answer comes from others with its batch size, optimizer and so on. Batch
normalisation is an exception: each replica normalises by its own share of the batch. Nothing is
said about settings with which nobody trained.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.measuring.measurement import OK
from farm.recommend.contracts import Evidence

# By measurement: the accuracy on the test set after the first epoch, the second one, and so on.
Curves = Mapping[int, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """`epoch_count`: of the training; None if it would never reach its target.

    `accuracy` was measured after `accuracy_epochs`, which are no more; None: nobody says. With more
    of these the accuracy is None.
    `is_own`: measured with this very strategy and world size.
    """

    epoch_count: int | None
    accuracy: float | None
    accuracy_epochs: int | None = None
    is_own: bool = True
    unknown_because: str | None = None


def learned(
    own: Sequence[Evidence],
    others: Sequence[Evidence],
    curves: Curves,
    *,
    epochs: int,
    target_accuracy_ratio: float | None,
) -> Learned:
    """Return how long a configuration trains and how accurate that gets it.

    `own`: its measurements; `others`: those of any configuration that computes its updates.
    Without a target it trains for `epochs`.
    """
    for group, is_own in ((own, True), (others, False)):
        usable = [e for e in group if e.status == OK]
        found = (
            _after(usable, curves, epochs=epochs, is_own=is_own)
            if target_accuracy_ratio is None
            else _until(usable, curves, target=target_accuracy_ratio, is_own=is_own)
        )
        if found is not None:
            return found
    if target_accuracy_ratio is None:
        after = [e.epochs for e in own if e.accuracy is not None and e.epochs is not None]
        return Learned(epoch_count=epochs, accuracy=None, accuracy_epochs=min(after, default=None))
    return Learned(
        epoch_count=None,
        accuracy=None,
        unknown_because="no accuracy was measured epoch by epoch with this global batch size",
    )


def _after(
    group: Sequence[Evidence], curves: Curves, *, epochs: int, is_own: bool
) -> Learned | None:
    """Take the accuracy after so many epochs, or else at the end of the longest shorter training.

    What was measured after more epochs says nothing. Where nobody says after how many it was, it
    counts where nothing else does.
    """
    reached: dict[int, list[float]] = {}
    for e in group:
        if curve := curves.get(e.measurement_id):
            after = min(epochs, len(curve))
            reached.setdefault(after, []).append(curve[after - 1])
        elif e.accuracy is not None and (e.epochs or 0) <= epochs:
            reached.setdefault(e.epochs or 0, []).append(e.accuracy)
    # Of others a curve is needed: a single accuracy does not say after how many epochs it was.
    if not reached or not (is_own or any(e.measurement_id in curves for e in group)):
        return None
    longest = max(reached)
    return Learned(
        epoch_count=epochs,
        accuracy=statistics.median(reached[longest]),
        accuracy_epochs=longest or None,
        is_own=is_own,
    )


def _until(
    group: Sequence[Evidence], curves: Curves, *, target: float, is_own: bool
) -> Learned | None:
    """Count the epochs until the first evaluation at or above the target (MLPerf)."""
    known = [curve for e in group if (curve := curves.get(e.measurement_id))]
    if not known:
        return None
    counts = sorted(
        next((epoch for epoch, value in enumerate(curve, start=1) if value >= target), None) or 0
        for curve in known
    )
    needed = [count for count in counts if count]
    if 2 * len(needed) <= len(known):
        best, epochs = max(max(curve) for curve in known), max(len(curve) for curve in known)
        return Learned(
            epoch_count=None,
            accuracy=best,
            is_own=is_own,
            unknown_because=f"reached at most {best:.4g} in {epochs} epochs",
        )
    epoch_count = needed[len(needed) // 2]
    reached = [curve[min(epoch_count, len(curve)) - 1] for curve in known]
    return Learned(
        epoch_count=epoch_count,
        accuracy=max(target, statistics.median(reached)),
        accuracy_epochs=epoch_count,
        is_own=is_own,
    )
