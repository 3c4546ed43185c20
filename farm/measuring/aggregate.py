"""Aggregates the repetitions of a cell: which of them count, and the medians of these.

Tables, pages, exports and recommendations all use it, so all show the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from farm.measuring.noise import UNDISTURBED, Disturbance
from farm.measuring.precision import Repetition, judged
from farm.measuring.quantities import QUANTITIES, Quantity
from farm.statistics import weighted_median

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Generic[_Row]):
    """`medians`: of the quantities, by name, over the `counted` repetitions.

    `disturbed`: what disturbed those that were. `set_aside`: disturbed ones that do not count,
    since undisturbed ones do.
    """

    counted: tuple[_Row, ...]
    set_aside: tuple[_Row, ...]
    disturbed: tuple[Disturbance, ...]
    medians: Mapping[str, float | None]


def aggregate(
    rows: Sequence[_Row],
    repetition_of: Callable[[_Row], Repetition],
    *,
    quantities: Sequence[Quantity] = QUANTITIES,
) -> Aggregate[_Row]:
    """Aggregate measured repetitions of a cell, all on one kind of hardware.

    Rows have the quantities as attributes. Those with a step time that can be believed count:
    without disturbed ones, or by their weights where all are. Where none has one, all rows count.
    """
    repetitions = [repetition_of(row) for row in rows]
    timed_ids = {job_id for job_id, _ in judged(repetitions)}
    both = list(zip(rows, repetitions, strict=True))
    counted = [pair for pair in both if pair[1].job_id in timed_ids] or both
    counted_ids = {repetition.job_id for _, repetition in counted}
    disturbed = [pair for pair in both if pair[1].disturbance != UNDISTURBED]
    medians = _medians(
        [row for row, _ in counted],
        [repetition.disturbance.weight for _, repetition in counted],
        quantities,
    )
    if not timed_ids:
        medians["step_time_s"] = None  # none that can be believed
    return Aggregate(
        counted=tuple(row for row, _ in counted),
        set_aside=tuple(row for row, one in disturbed if one.job_id not in counted_ids),
        disturbed=tuple(repetition.disturbance for _, repetition in disturbed),
        medians=medians,
    )


def _medians(
    rows: Sequence[Any], weights: Sequence[float], quantities: Sequence[Quantity]
) -> dict[str, float | None]:
    read = attrgetter(*(quantity.name for quantity in quantities))
    columns = zip(*map(read, rows), strict=True) if rows else [()] * len(quantities)
    found: dict[str, float | None] = {}
    for quantity, values in zip(quantities, columns, strict=True):
        both = zip(values, weights, strict=True)
        known = [(value, weight) for value, weight in both if value is not None]
        found[quantity.name] = weighted_median(known) if known else None
    return found
