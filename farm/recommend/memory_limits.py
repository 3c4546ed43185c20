"""Rules out configurations that need more memory than one that ran out of it. Pure.

A configuration that ran out of memory also does so with larger batch sizes. Memory does not depend
on the network. The framework's name is ignored, since a job that failed early does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.spec import TrainingPass
from farm.messages.trainer_lines import FailureKind
from farm.recommend.configuration import Configuration
from farm.recommend.setup import Setup

OUT_OF_MEMORY = FailureKind.OUT_OF_MEMORY.value

_Way = tuple[str | None, Setup, str | None]
_Sized = tuple[_Way, int, int]
Workload = tuple[str | None, str | None, TrainingPass]


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Of one workload. `least_full`: the batch sizes from which on a setup runs out of memory."""

    least_full: Mapping[_Sized, int]
    full: Sequence[Configuration]
    worked: Sequence[Configuration]

    @classmethod
    def of(cls, full: Iterable[Configuration], worked: Iterable[Configuration]) -> MemoryLimits:
        """Learn the limits. `full` ran out of memory, unless a larger batch worked."""
        worked = list(worked)
        largest: dict[_Sized, int] = {}
        for c in worked:
            largest[_sized(c)] = max(c.global_batch_size, largest.get(_sized(c), 0))
        full = [c for c in full if c.global_batch_size > largest.get(_sized(c), 0)]
        least: dict[_Sized, int] = {}
        for c in full:
            least[_sized(c)] = min(c.global_batch_size, least.get(_sized(c), c.global_batch_size))
        return cls(least, full, worked)

    def exceeded_by(self, configuration: Configuration) -> int | None:
        """Return the batch size, at most the asked one, that ran out of memory; else None."""
        limit = self.least_full.get(_sized(configuration))
        return limit if limit is not None and configuration.global_batch_size >= limit else None

    def doubt(self, configuration: Configuration) -> str | None:
        """Say which other gang, or one machine, ran out of memory with no more on a machine.

        None where as much was done on any number of machines.
        """
        examples = configuration.per_machine_batch_size
        if any(
            _way(c) == _way(configuration) and c.per_machine_batch_size >= examples
            for c in self.worked
        ):
            return None
        full = [
            c
            for c in self.full
            if c.per_machine_batch_size <= examples
            and c.instance_type == configuration.instance_type
            and (c.is_one_machine or _way(c) == _way(configuration))
        ]
        if not full:
            return None
        nearest = max(full, key=lambda c: c.per_machine_batch_size)
        return (
            f"it may run out of memory, as world size {nearest.world_size} did with "
            f"{nearest.per_replica_batch_size:g} examples for each replica"
        )


def limits_by_workload(
    failures: Iterable[tuple[Configuration, str]], worked: Iterable[Configuration]
) -> Mapping[Workload, MemoryLimits]:
    """Return the limits of each workload with a configuration that ran out of memory.

    `failures`: configurations with their status.
    """
    full: dict[Workload, list[Configuration]] = {}
    for c, status in failures:
        if status == OUT_OF_MEMORY:
            full.setdefault(workload(c), []).append(c)
    done: dict[Workload, list[Configuration]] = {name: [] for name in full}
    for c in worked:
        if workload(c) in done:
            done[workload(c)].append(c)
    return {name: MemoryLimits.of(full[name], done[name]) for name in full}


def workload(c: Configuration) -> Workload:
    return (c.model, c.dataset, c.training_pass)


def _sized(c: Configuration) -> _Sized:
    return (_way(c), c.world_size, c.server_count)


def _way(c: Configuration) -> _Way:
    return (c.strategy, c.setup, c.instance_type)
