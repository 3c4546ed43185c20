"""Distances between configurations, for errors that depend on the place."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.calibrated.novelty import BY_RATIO, NUMBERS, GapAxis, Space
from farm.recommend.configuration import Configuration
from farm.recommend.features import LIMITS, named, plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Two strategies are as far apart as two measured values next to each other.
_NAME_DISTANCE = 1.0
# A value beyond all that were measured lies at most this much further than the last of them.
_BEYOND = 1.0


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A space in which two values next to each other, of those measured, are 1 apart.

    Counting values needs no unit and no idea of how times depend on them: those who measured chose
    them where something changes.
    """

    space: Space
    values: tuple[tuple[float, ...], ...]  # measured ones in order, for each of NUMBERS
    names: tuple[tuple[object, ...], ...]  # measured ones, for each of NAMES

    @classmethod
    def of(cls, space: Space) -> Neighbourhood:
        known = [named(c) for c in space.configurations]
        return cls(
            space=space,
            values=tuple(
                tuple(
                    sorted(
                        {
                            v
                            for v in (space.value(c, axis) for c in space.configurations)
                            if v is not None
                        }
                    )
                )
                for axis in NUMBERS
            ),
            names=tuple(tuple(dict.fromkeys(column)) for column in zip(*known, strict=True)),
        )

    def locate(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return where they are: (len(configurations), dimensions)."""
        import numpy as np

        dimensions = len(NUMBERS) + sum(len(known) for known in self.names if len(known) > 1)
        rows = [self._row(plain(c)) for c in configurations]
        return np.array(rows, dtype=float).reshape(len(rows), dimensions)

    def _row(self, configuration: Configuration) -> list[float]:
        row: list[float] = []
        for axis, values in zip(NUMBERS, self.values, strict=True):
            value = self.space.value(configuration, axis)
            if len(values) < 2 or value is None:
                row.append(0.0)
            else:
                row.append(_position(_warped(value, axis), _all_warped(values, axis)))
        for own, known in zip(named(configuration), self.names, strict=True):
            if len(known) > 1:
                # Half the squared distance of two that differ is 1 / 2 + 1 / 2 of the square.
                row += [_NAME_DISTANCE / math.sqrt(2) * (own == name) for name in known]
        return row


def _warped(value: float, axis: GapAxis) -> float:
    """Return the number that lies between two others as one expects of it."""
    if axis in BY_RATIO:
        return math.log(value)
    if axis.condition in LIMITS:
        return -1 / value  # no limit: 0
    return value


@functools.lru_cache(maxsize=256)  # the measured values, for every configuration that is located
def _all_warped(values: tuple[float, ...], axis: GapAxis) -> tuple[float, ...]:
    return tuple(_warped(v, axis) for v in values)


def _position(value: float, known: Sequence[float]) -> float:
    """Return which of the known values it is, counted from 0; between two of them a fraction."""
    for index, (lower, upper) in enumerate(itertools.pairwise(known)):
        if value <= upper or index == len(known) - 2:
            position = index + (value - lower) / (upper - lower)
            return min(max(position, -_BEYOND), len(known) - 1 + _BEYOND)
    raise AssertionError("two values at least are known")
