"""Never faster with a larger batch, more delay, less bandwidth, more loss or more jitter.

What is predicted is projected onto functions that only grow along these axes: on a grid of levels
the mean of the smallest growing function above and the largest one below. Between levels times are
interpolated linearly in examples, seconds, seconds per byte and so on, in which the physical sum is
linear, too. Beyond the last level what the physical sum grows by is added, times one factor for
all; below the first one the time shrinks as the sum does. As the sum has no products of its axes,
each of these steps keeps the order, so that it holds exactly for any two questions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.calibrated.novelty import keeps_replica_batch
from farm.recommend.configuration import Configuration
from farm.recommend.features import CONDITIONS, amounts, named
from farm.recommend.predictors.cells import spread
from farm.recommend.predictors.estimates import Pairs, Times

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Key = tuple[object, ...]

# Levels of the batch size, and of each condition by how many of these vary.
_MOST_BATCHES = 24
_MOST_LEVELS = (16, 6, 4, 3)
# A level is added halfway between two batch sizes that are further apart.
_BATCH_RATIO = 2.0
# Levels beyond the smallest and the largest batch size, each half or twice the one before.
_OCTAVES_BEYOND = 3
_EQUAL = 1 + 1e-9
_MOST_SLICES = 2000  # kept; a slice takes some kilobytes
# How far the factor of the physical sum may be from 1.
_LEAST_FACTOR, _MOST_FACTOR = 0.2, 5.0


@dataclass(frozen=True, slots=True)
class Slice:
    """What differs in nothing but the axes: levels of each one, and the times on their grid.

    The axes are the global batch size and then `CONDITIONS`, in their base units, bandwidth as
    seconds per byte; `factor` is that of the physical sum beyond the levels.
    """

    levels: tuple[NDArray[np.float64], ...]
    times_s: NDArray[np.float64]
    factor: float

    def at(self, place: Sequence[float]) -> float:
        """Interpolate between the levels of each axis; `place` is within them."""
        times_s = self.times_s
        for levels, value in zip(self.levels, place, strict=True):
            if len(levels) == 1:
                times_s = times_s[0]
                continue
            above = min(max(int(levels.searchsorted(value)), 1), len(levels) - 1)
            low, high = levels[above - 1], levels[above]
            share = (value - low) / (high - low)
            times_s = (1 - share) * times_s[above - 1] + share * times_s[above]
        return float(times_s)


class Monotone:
    """The levels of what was measured, and the slices that were asked for so far."""

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        import numpy as np

        self._is_weak = keeps_replica_batch(configurations)
        batches = [
            c.per_replica_batch_size if self._is_weak else float(c.global_batch_size)
            for c in configurations
        ]
        if not configurations:
            return
        inside = _levels(np.unique(batches), _MOST_BATCHES, ratio=_BATCH_RATIO)
        beyond = 2.0 ** np.arange(1, _OCTAVES_BEYOND + 1)
        self._batches = np.concatenate([inside[0] / beyond[::-1], inside, inside[-1] * beyond])
        gangs = [c for c in configurations if not c.is_one_machine]
        measured = [np.unique(amounts(gangs, name)) for name in CONDITIONS]
        varied = sum(len(values) > 1 for values in measured)
        most = _MOST_LEVELS[min(varied, len(_MOST_LEVELS)) - 1]
        self._conditions = tuple(_levels(values, most) for values in measured)
        self._slices: dict[_Key, Slice] = {}

    def times_s(
        self, asked: Sequence[Configuration], both_s: Pairs, physical_s: Times
    ) -> NDArray[np.float64]:
        """Return the projected times of plain configurations (`features.plain`).

        `both_s`: what is projected, and the physical sum that `physical_s` returns alone. They are
        the same functions at every call.
        """
        import numpy as np

        self._prepare(asked, both_s)
        slices = [self._slices[_key(c)] for c in asked]
        places = np.stack([_axis(asked, axis) for axis in range(1 + len(CONDITIONS))], axis=1)
        first = np.array([[levels[0] for levels in part.levels] for part in slices])
        last = np.array([[levels[-1] for levels in part.levels] for part in slices])
        raised = np.maximum(places, first)
        edges = np.minimum(raised, last)
        found = np.array([part.at(edge) for part, edge in zip(slices, edges, strict=True)])
        above: list[int] = np.flatnonzero(np.any(raised > edges * _EQUAL, axis=1)).tolist()
        if above:
            sums_s = physical_s([_at(asked[i], raised[i]) for i in above])
            sums_s -= physical_s([_at(asked[i], edges[i]) for i in above])
            found[above] += np.array([slices[i].factor for i in above]) * sums_s
        below: list[int] = np.flatnonzero(np.any(places * _EQUAL < raised, axis=1)).tolist()
        if below:
            sums_s = physical_s([_at(asked[i], places[i]) for i in below])
            found[below] *= sums_s / physical_s([_at(asked[i], raised[i]) for i in below])
        return found

    def _prepare(self, configurations: Sequence[Configuration], both_s: Pairs) -> None:
        import numpy as np

        if len(self._slices) > _MOST_SLICES:
            self._slices.clear()
        missing = {_key(c): c for c in configurations if _key(c) not in self._slices}
        if not missing:
            return
        grids = [self._grid(c) for c in missing.values()]
        points = [
            _at(configuration, place)
            for configuration, levels in zip(missing.values(), grids, strict=True)
            for place in itertools.product(*levels)
        ]
        raw_s, sums_s = both_s(points)
        start = 0
        for key, levels in zip(missing, grids, strict=True):
            shape = tuple(len(axis) for axis in levels)
            end = start + int(np.prod(shape))
            factor = float(np.median(raw_s[start:end] / sums_s[start:end]))
            self._slices[key] = Slice(
                levels,
                _projected(raw_s[start:end].reshape(shape)),
                min(_MOST_FACTOR, max(_LEAST_FACTOR, factor)),
            )
            start = end

    def _grid(self, configuration: Configuration) -> tuple[NDArray[np.float64], ...]:
        import numpy as np

        factor = configuration.world_size if self._is_weak else 1
        batches = np.unique(np.maximum(1.0, np.round(self._batches * factor)))
        if configuration.is_one_machine:
            return (batches, *(np.zeros(1) for _ in CONDITIONS))
        return (batches, *self._conditions)


def _projected(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a function that grows along every axis, between the two closest of them."""
    import numpy as np

    above, below = times_s, times_s
    for axis in range(times_s.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
    # The geometric mean, since errors are relative; it grows as both do.
    projected: NDArray[np.float64] = np.sqrt(above * below)
    return projected


def _levels(
    values: NDArray[np.float64], most: int, *, ratio: float | None = None
) -> NDArray[np.float64]:
    """Return the measured values, and what is halfway between them where there are few.

    With a ratio: halfway in ln, and only between those that are further apart.
    """
    import numpy as np

    if len(values) < 2:
        return values if len(values) else np.zeros(1)
    low, high = values[:-1], values[1:]
    halfway = (low + high) / 2 if ratio is None else np.sqrt(low * high)[high / low > ratio]
    if len(values) + len(halfway) <= most:
        return np.sort(np.concatenate([values, halfway]))
    return values[spread(len(values), most)]


def _key(configuration: Configuration) -> _Key:
    return (configuration.world_size, configuration.server_count, *named(configuration))


def _axis(configurations: Sequence[Configuration], axis: int) -> NDArray[np.float64]:
    import numpy as np

    if axis == 0:
        return np.array([c.global_batch_size for c in configurations], dtype=float)
    return amounts(configurations, CONDITIONS[axis - 1])


def _at(
    configuration: Configuration, place: Sequence[float] | NDArray[np.float64]
) -> Configuration:
    batch, delay_s, per_byte_s, loss_ratio, jitter_s = (float(value) for value in place)
    return dataclasses.replace(
        configuration,
        global_batch_size=round(batch),
        one_way_delay_s=delay_s,
        bandwidth_bytes_per_s=1 / per_byte_s if per_byte_s > 0 else None,
        packet_loss_ratio=loss_ratio,
        jitter_s=jitter_s,
    )
