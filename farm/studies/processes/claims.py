"""What theory says of several processes and of batch sizes, and the values it is held against.

No measurements of this study were published with their numbers, so that there is theory alone.
"""

from __future__ import annotations

from farm.studies.orderings import Ordering, Place, Placed
from farm.studies.processes.set_ups import SetUp, SetUps
from farm.studies.run_groups import placed_of

CLAIMS = (
    Ordering(
        says="a larger batch makes an epoch shorter",
        of="time_per_epoch_s",
        along="batch",
        is_rising=False,
        because="An epoch has the same examples at any batch. A larger one saves steps, and with "
        "them what a step costs beside its examples; once that is little, or the examples no "
        "longer fit the processor's caches, nothing is left to save.",
    ),
    Ordering(
        says="processes on a core each make an epoch shorter than one does",
        of="time_by_processes_s",
        along="processes",
        is_rising=False,
        because="Each computes on its share of the batch, but every step ends with an exchange of "
        "all gradients, which costs the same however short the computing was. Here it takes part "
        "of the very cores that compute.",
    ),
    Ordering(
        says="the larger the batch, the more several processes gain",
        of="speed_up",
        along="batch",
        is_rising=True,
        because="The exchange weighs less beside more computing; where the gain is close to its "
        "limit already, or both are disturbed, there is no more of it.",
    ),
    Ordering(
        says="two replicas in a process of one core gain nothing",
        of="time_by_replicas_s",
        along="replicas",
        is_rising=True,
        because="They take turns on the core. Two halves of a large batch may fit its caches where "
        "the whole does not.",
    ),
    Ordering(
        says="after the same epochs, a larger batch leaves a larger loss",
        of="test_loss",
        along="batch",
        is_rising=True,
        because="It makes fewer updates of the same size. Once a training is over, or where many "
        "small updates overshoot, the number of updates no longer decides.",
    ),
    Ordering(
        says="after the same epochs, a larger batch is less accurate",
        of="accuracy",
        along="batch",
        is_rising=False,
        because="It makes fewer updates of the same size. Once a training is over, or where many "
        "small updates overshoot, the number of updates no longer decides.",
    ),
)


def claimed_values(found: SetUps) -> dict[str, list[Placed]]:
    """Return the medians that the claims are about, by the name of the value."""
    one_replica_each = [one for one in found.all if one.process_count == one.replica_count]
    one_process = [one for one in found.all if one.process_count == 1]
    return {
        "time_per_epoch_s": _placed(found, "time_per_epoch_s", found.all),
        "time_by_processes_s": [
            _at(placed, processes=one.process_count)
            for one in one_replica_each
            for placed in _placed(found, "time_per_epoch_s", [one])
        ],
        "time_by_replicas_s": [
            _at(placed, replicas=one.replica_count)
            for one in one_process
            for placed in _placed(found, "time_per_epoch_s", [one])
        ],
        "speed_up": [
            placed
            for one in found.others
            if one.process_count > 1
            for batch in found.batches
            if (placed := placed_of(found.speed_ups(one, batch), _place(one, batch)))
        ],
        "test_loss": _placed(found, "test_loss", found.all),
        "accuracy": _placed(found, "accuracy", found.all),
    }


def _placed(found: SetUps, column: str, of: tuple[SetUp, ...] | list[SetUp]) -> list[Placed]:
    return [
        placed
        for one in of
        for batch in found.batches
        if (point := one.at(batch))
        and (placed := placed_of([v for v in point.values_of(column) if v > 0], _place(one, batch)))
    ]


def _place(one: SetUp, batch: int) -> Place:
    return {"set_up": one.name, "batch": batch}


def _at(placed: Placed, **where: int) -> Placed:
    """Place a value by a number instead of by the name of its set-up."""
    at: Place = {"batch": placed.at["batch"], **where}
    return Placed(at=at, value=placed.value, low=placed.low, high=placed.high)
