"""Measurements along one axis, and what some prediction is off by at each of them.

On each axis - batch, world size, each condition of the network - the measurements that agree with
the question in everything else are looked up, and ln(measured / predicted) is interpolated between
the one before and the one after it, linearly in ln(batch), in world size and in the condition. What
the axes say is averaged; beyond the last measurement its value is kept, and counts for little.
Nothing is learned, so it follows jumps that smooth processes iron out, and noise as well.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration
from farm.recommend.features import CONDITIONS, named
from farm.recommend.predictors.cells import Cells

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BEYOND = 0.1  # the weight of an axis whose measurements are all on one side
# World size twice: at the same per-replica and at the same global batch size.
_REPLICA, _GLOBAL = "per_replica_batch_size", "global_batch_size"
_DIGITS = 9  # delays were converted from milliseconds, so equal ones may differ in their last bits

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Measurements that differ on one axis: places, ascending, what the sum is off by, weights."""

    places: list[float]
    errors: list[float]
    weights: list[float]

    @classmethod
    def of(cls, found: Mapping[float, tuple[float, float]]) -> Line:
        """Return the line of errors and weights by place."""
        places = sorted(found)
        return cls(places, [found[p][0] for p in places], [found[p][1] for p in places])

    def at(self, place: float) -> tuple[float, float]:
        """Return the interpolated error and its weight."""
        after = bisect.bisect_left(self.places, place)
        if after < len(self.places) and self.places[after] == place:
            return self.errors[after], self.weights[after]
        if after in (0, len(self.places)):
            end = min(after, len(self.places) - 1)
            return self.errors[end], _BEYOND * self.weights[end]
        before = after - 1
        share = (place - self.places[before]) / (self.places[after] - self.places[before])
        error = (1 - share) * self.errors[before] + share * self.errors[after]
        return error, min(self.weights[before], self.weights[after])


class Lines:
    """The lines of all axes, or of the network's conditions alone."""

    def __init__(
        self, cells: Cells, log_errors: NDArray[np.float64], *, only_conditions: bool = False
    ) -> None:
        """`log_errors`: ln(measured / predicted) of each cell: (n_cells,)."""
        gangs = [c for c in cells.configurations if not c.is_one_machine]
        self._varied = tuple(
            i for i, name in enumerate(CONDITIONS) if len({_amount(c, name) for c in gangs}) > 1
        )
        self._only_conditions = only_conditions
        found: dict[_Key, dict[_Key, dict[float, tuple[float, float]]]] = {}
        for c, error, weight in zip(cells.configurations, log_errors, cells.weights, strict=True):
            lines = found.setdefault(named(c), {})
            for key, place, share in self._axes(c):
                lines.setdefault(key, {})[place] = (float(error), share * float(weight))
        self._lines = {
            names: {key: Line.of(line) for key, line in lines.items()}
            for names, lines in found.items()
        }

    def log_errors(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return what ln(predicted) of each plain configuration (`features.plain`) is too small
        by: (n_configurations,).
        """
        import numpy as np

        return np.array([self._error(c) for c in configurations])

    def _error(self, configuration: Configuration) -> float:
        lines = self._lines.get(named(configuration))
        if lines is None:
            return 0.0
        total, weights = 0.0, 0.0
        for key, place, _ in self._axes(configuration):
            line = lines.get(key)
            if line is not None:
                error, weight = line.at(place)
                total += weight * error
                weights += weight
        return total / weights if weights else 0.0

    def _axes(self, c: Configuration) -> list[tuple[_Key, float, float]]:
        along_conditions = _condition_axes(c, self._varied)
        return along_conditions if self._only_conditions else [*_size_axes(c), *along_conditions]


def _size_axes(c: Configuration) -> list[tuple[_Key, float, float]]:
    """Return for the axes of batch and world size the line that a configuration lies on, its place,
    and how it counts. Names are the same on a line and no part of its key.
    """
    conditions = _conditions(c)
    found: list[tuple[_Key, float, float]] = [
        (("batch", *_size(c), conditions), _rounded(math.log(c.global_batch_size)), 1.0)
    ]
    if c.is_one_machine:
        return found  # it is the first of a curve on every network, and knows none of them
    for batch in (_REPLICA, _GLOBAL):
        same = (batch, _rounded(getattr(c, batch)), c.server_count)
        found.append((("world size", same, conditions), float(c.world_size), 0.5))
    return found


def _condition_axes(c: Configuration, varied: Sequence[int]) -> list[tuple[_Key, float, float]]:
    """Return the same for the conditions; `varied`: which of `CONDITIONS` are axes."""
    if c.is_one_machine:
        return []
    conditions = _conditions(c)
    found: list[tuple[_Key, float, float]] = []
    for i in varied:
        others = conditions[:i] + conditions[i + 1 :]
        key = (CONDITIONS[i], _size(c), c.global_batch_size, others)
        found.append((key, conditions[i], 1.0))
    return found


def _size(c: Configuration) -> tuple[int, int]:
    return c.world_size, c.server_count


def _conditions(c: Configuration) -> tuple[float, ...]:
    return tuple(_amount(c, name) for name in CONDITIONS)


def _amount(c: Configuration, condition: str) -> float:
    """Return how much of a condition there is; of the bandwidth, seconds per byte."""
    value = getattr(c, condition)
    if condition == "bandwidth_bytes_per_s":
        value = 0.0 if value is None else 1 / value
    return _rounded(value)


@functools.lru_cache(maxsize=4096)  # the same few values, for all points of a grid
def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
