"""Groups configurations that answer the same question."""

from __future__ import annotations

from collections.abc import Sequence

from farm.configuration.spec import TrainingPass
from farm.recommend.configuration import Configuration
from farm.recommend.features import plain

Choice = tuple[int, ...]  # positions in a list of configurations
_Workload = tuple[str | None, str | None, TrainingPass, int]


def choices(configurations: Sequence[Configuration]) -> tuple[Choice, ...]:
    """Group the positions of configurations between which somebody has to choose, two at least.

    A question names the workload, the global batch size and the network; world size, strategy,
    servers and instance type are the answer. One machine, with however many ranks, is an option of
    every question about its workload and batch size, since no network matters to it.
    """
    gangs: dict[_Workload, dict[tuple[object, ...], list[int]]] = {}
    alone: dict[_Workload, list[int]] = {}
    for i, c in enumerate(configurations):
        workload = (c.model, c.dataset, c.training_pass, c.global_batch_size)
        if not c.has_network:
            alone.setdefault(workload, []).append(i)
            continue
        gangs.setdefault(workload, {}).setdefault((c.network, *c.conditions), []).append(i)
    found = []
    for workload in dict.fromkeys([*gangs, *alone]):
        single = _distinct(configurations, alone.get(workload, []))
        for options in gangs.get(workload, {}).values() or [[]]:
            choice = (*single, *options)
            if len(choice) > 1:
                found.append(choice)
    return tuple(found)


def _distinct(configurations: Sequence[Configuration], positions: Sequence[int]) -> list[int]:
    """Keep the first of the positions that are one and the same machine."""
    first: dict[Configuration, int] = {}
    for i in positions:
        first.setdefault(plain(configurations[i]), i)
    return list(first.values())
