"""A physical sum, corrected by what the nearest measurements on each axis were off by.

On each axis - batch, world size, each condition of the network - the measurements that agree with
the question in everything else are looked up, and ln(measured / sum) is interpolated between the
one before and the one after it, linearly in ln(batch), in world size and in the condition. What the
axes say is averaged; beyond the last measurement its value is kept, and counts for little. Nothing
is learned, so it follows jumps that smooth processes iron out, and noise as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import CONDITIONS, NAMES, Known, plain
from farm.recommend.predictors.cells import cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.physical import FittedPhysical, estimates

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

    places: NDArray[np.float64]
    errors: NDArray[np.float64]
    weights: NDArray[np.float64]

    def at(self, place: float) -> tuple[float, float]:
        """Return the interpolated error and its weight."""
        import numpy as np

        after = int(np.searchsorted(self.places, place))
        if after < len(self.places) and self.places[after] == place:
            return float(self.errors[after]), float(self.weights[after])
        if after in (0, len(self.places)):
            end = min(after, len(self.places) - 1)
            return float(self.errors[end]), _BEYOND * float(self.weights[end])
        before = after - 1
        share = (place - self.places[before]) / (self.places[after] - self.places[before])
        error = (1 - share) * self.errors[before] + share * self.errors[after]
        return float(error), float(min(self.weights[before], self.weights[after]))


class Neighbours:
    name = "neighbours"

    def fit(self, observations: Sequence[Observation]) -> FittedNeighbours:
        return FittedNeighbours(FittedPhysical(observations), observations)


class FittedNeighbours:
    def __init__(self, mean: FittedPhysical, observations: Sequence[Observation]) -> None:
        import numpy as np

        self._known = Known.of(observations)
        self._mean = mean
        self._lines: dict[_Key, Line] = {}
        if not observations:
            return
        cells = cells_of(observations)
        errors = cells.logs - np.log(mean.times_s(cells.configurations))
        found: dict[_Key, dict[float, tuple[float, float]]] = {}
        for configuration, error, weight in zip(
            cells.configurations, errors, cells.weights, strict=True
        ):
            for key, place, share in _axes(configuration):
                found.setdefault(key, {})[place] = (float(error), share * float(weight))
        for key, line in found.items():
            places = sorted(line)
            self._lines[key] = Line(
                np.array(places),
                np.array([line[place][0] for place in places]),
                np.array([line[place][1] for place in places]),
            )

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._known, configurations, self.times_s)

    def times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return the time of each; above 0."""
        import numpy as np

        asked = [plain(c) for c in configurations]
        errors = np.array([self._error(c) for c in asked])
        times_s: NDArray[np.float64] = self._mean.times_s(asked) * np.exp(errors)
        return times_s

    def _error(self, configuration: Configuration) -> float:
        total, weights = 0.0, 0.0
        for key, place, _ in _axes(configuration):
            line = self._lines.get(key)
            if line is not None:
                error, weight = line.at(place)
                total += weight * error
                weights += weight
        return total / weights if weights else 0.0


def _axes(configuration: Configuration) -> list[tuple[_Key, float, float]]:
    """Return for each axis the line that a configuration lies on, its place, and how it counts."""
    c = configuration
    names = tuple(getattr(c, name) for name in NAMES)
    conditions = tuple(_rounded(getattr(c, name)) for name in CONDITIONS)
    size = (c.world_size, c.server_count)
    found: list[tuple[_Key, float, float]] = [
        (("batch", names, size, conditions), _place(math.log(c.global_batch_size)), 1.0)
    ]
    if c.is_one_machine:
        return found  # it is the first of a curve on every network, and knows none of them
    for batch in (_REPLICA, _GLOBAL):
        same = (batch, _rounded(getattr(c, batch)), c.server_count)
        found.append((("world size", names, same, conditions), float(c.world_size), 0.5))
    for i, name in enumerate(CONDITIONS):
        value = getattr(c, name)
        if name == "bandwidth_bytes_per_s":
            value = 0.0 if value is None else 1 / value
        others = conditions[:i] + conditions[i + 1 :]
        found.append(((name, names, size, c.global_batch_size, others), _place(float(value)), 1.0))
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _place(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
