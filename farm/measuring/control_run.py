"""Compares an agent's speed with its own past, by a short computation before each attempt.

If the same work takes longer, the machine has become slower: a neighbour, a lower clock, another
host under the VM. Machines are not compared with each other, except to divide a batch by speed.
Then their cores over this time, or a control run of their GPUs, are compared: see
`farm.gang.barriers.batch_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass

from farm.statistics import quantile

PAST_COUNT = 20  # how many of an agent's latest runs are its past
# Fewer say too little: of five, two may be wrong before the median is.
LEAST_PAST_COUNT = 5
RECENT_COUNT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRun:
    """One rank's run. `past_s`: its agent's earlier ones on the same hardware, the last first.

    Whatever became of their attempts: the runs of void ones are in it too, since a machine that
    has changed for good must become its own new past.
    """

    control_s: float
    past_s: tuple[float, ...]
    core_count: int = 1  # each did the work by itself, at the same time as the others

    @property
    def ratio(self) -> float | None:
        """Time over the median of earlier runs; None if there are too few."""
        return self._over(self.past_s[:PAST_COUNT])

    @property
    def recent_ratio(self) -> float | None:
        """Time over the median of the last five runs, which follows changes sooner."""
        return self._over(self.past_s[:RECENT_COUNT])

    def _over(self, past_s: tuple[float, ...]) -> float | None:
        if len(past_s) < LEAST_PAST_COUNT:
            return None
        median_s = quantile(sorted(past_s), 0.5)
        return self.control_s / median_s if median_s > 0 else None
