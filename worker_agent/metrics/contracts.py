"""The interface of a group of metrics that is sampled once a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is sampled for one rank: its processes and resources."""

    cpus: tuple[int, ...]
    interface: str
    pids: tuple[int, ...]  # the trainers, and a proxy; their descendants belong to them
    gpus: tuple[str, ...] = ()  # UUIDs of the agent's
    roles: tuple[str, ...] = ()  # of the trainers, in the order of their pids

    @property
    def has_machine(self) -> bool:
        """Whether the agent has all CPUs of the machine, whose energy is then the rank's."""
        return len(self.cpus) == os.cpu_count()


class Metric(Protocol):
    """One group of columns. A new object is made for each rank, so it may keep the last reading."""

    def read(self, tick: int) -> Mapping[str, float | int | None]:
        """Return values by field of `Sample`; other names become extras.

        Called once for each sampled tick, in order. None is a value that is not known yet, such as
        a rate at the first tick.

        Raises:
            OSError, psutil.Error: not readable now; the tick lacks these columns.
        """
        ...
