"""The processes study's runs, by processes, replicas and batch size, and what is claimed of them.

No measurements of this study were published with their numbers, so the claims are theory alone.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.measuring.study_run import StudyRun
from farm.studies.conditions import refuse_other_work
from farm.studies.orderings import Ordering, Place, Placed
from farm.studies.run_groups import RunGroup, one_kind, placed_of, ratios, run_groups
from farm.text.nouns import counted

_AXES = ("strategy", "world_size", "replicas_per_rank", "global_batch_size")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """So many processes and replicas, with a point for each batch size, the smallest first."""

    strategy: str
    process_count: int
    replica_count: int
    points: tuple[RunGroup, ...]

    @property
    def name(self) -> str:
        """Say what tells it from the others."""
        processes = counted(self.process_count, "process", "processes")
        if self.replica_count > self.process_count:
            each = "" if self.process_count == 1 else " each"
            replicas = self.replica_count // self.process_count
            return f"{processes} with {replicas} replicas{each} ({self.strategy})"
        return f"{processes} ({self.strategy})"

    def at(self, batch: int) -> RunGroup | None:
        """Return the point of a batch size; None if it was not measured."""
        return next((p for p in self.points if p.first.global_batch_size == batch), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUps:
    """All of the study's, the one process with one replica first, if it is there."""

    runs: tuple[StudyRun, ...]
    all: tuple[SetUp, ...]

    @property
    def alone(self) -> SetUp | None:
        """Return the one process with one replica."""
        first = self.all[0]
        return first if first.replica_count == 1 else None

    @property
    def others(self) -> tuple[SetUp, ...]:
        return self.all if self.alone is None else self.all[1:]

    @property
    def batches(self) -> list[int]:
        """Return every batch size that anything was measured at."""
        return sorted({p.first.global_batch_size for one in self.all for p in one.points})

    def speed_ups(self, one: SetUp, batch: int) -> list[float]:
        """Return by repetition the epoch time of one process over that of a set-up."""
        point = one.at(batch)
        alone = self.alone.at(batch) if self.alone else None
        if point is None or alone is None:
            return []
        return ratios(alone, point, "time_per_epoch_s")


def set_ups(runs: Sequence[StudyRun]) -> SetUps:
    """Sort the runs of the study.

    Raises:
        FarmError: no run has a time, or the runs are not of the same work.
    """
    refuse_other_work(
        runs,
        "model",
        "data set",
        "number of epochs",
        compares="numbers of processes at one model, data set and number of epochs",
    )
    kept = one_kind(runs, study="processes")
    by_set_up: dict[tuple[int, int, str], list[RunGroup]] = {}
    for group in run_groups(kept, _AXES):
        first = group.first
        replicas = first.world_size * (first.replicas_per_rank or 1)
        by_set_up.setdefault((first.world_size, replicas, first.strategy or "?"), []).append(group)
    return SetUps(
        runs=tuple(kept),
        all=tuple(
            SetUp(
                strategy=strategy,
                process_count=processes,
                replica_count=replicas,
                points=tuple(sorted(groups, key=lambda group: group.first.global_batch_size)),
            )
            for (processes, replicas, strategy), groups in sorted(by_set_up.items())
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
