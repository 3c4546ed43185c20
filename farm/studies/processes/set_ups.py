"""The processes study's runs: by how many processes and replicas, and by batch size. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.conditions import epochs_of, refuse_other_work
from farm.studies.pairs import ratios
from farm.studies.run_groups import RunGroup, one_kind, run_groups

_AXES = ("strategy", "world_size", "replicas_per_rank", "global_batch_size")
# What all runs have to have in common: the page tells them apart by set-up and batch alone.


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
        processes = _several(self.process_count, "process", "processes")
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
    _refuse_other_work(runs)
    kept = one_kind(runs)
    if not kept:
        raise FarmError("the processes study has no measured run to show")
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


def _refuse_other_work(runs: Sequence[StudyRun]) -> None:
    """Its points are distinguished by processes, replicas and batch: other work would be pooled."""
    refuse_other_work(
        {
            "model": {run.model for run in runs},
            "data set": {run.dataset for run in runs},
            "number of epochs": epochs_of(runs),
        },
        compares="numbers of processes at one model, data set and number of epochs",
    )


def _several(count: int, one: str, many: str) -> str:
    return f"1 {one}" if count == 1 else f"{count} {many}"
