"""Predicts by the physical sum, corrected by its errors at the nearest measurements.

The axes are the batch, the world size and each condition of the network. On each axis it takes the
measurements that agree with the question in everything else, and interpolates ln(measured /
predicted) between the two nearest ones, linearly in ln(batch), in world size and in the condition.
The values of all axes are averaged. Beyond the last measurement its value is kept, with little
weight. Nothing is learned, so it follows jumps that smooth processes iron out, and noise, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import rounded
from farm.recommend.predictors.columns import Cells, FeatureColumns, Names, cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import equally_doubtful, estimates
from farm.recommend.predictors.physical import FittedPhysical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Found = tuple[NDArray[np.int64], NDArray[np.bool_]]


_BEYOND = 0.1  # the weight of an axis whose measurements are all on one side
_UNMEASURED = -1  # names


@dataclass(frozen=True, slots=True)
class AxisPoints:
    """n configurations along one axis: the line of each, its place on it, and its weight.

    `keys`: (n, n_keys), equal on a line; `places`: (n,); `are_on`: which are on any line at all.
    """

    keys: NDArray[np.float64]
    places: NDArray[np.float64]
    are_on: NDArray[np.bool_]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class AxisLines:
    """The lines along one axis, their m measurements by line and place.

    `levels`: all places, ascending; `codes`: (m,), ascending, see `_codes`; `places`, `errors` and
    `weights`: (m,).
    """

    lines: Numbering
    levels: NDArray[np.float64]
    codes: NDArray[np.int64]
    places: NDArray[np.float64]
    errors: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls, points: AxisPoints, errors: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> AxisLines:
        """Sort points that are on the axis by line and place; `errors`, `weights`: (n,)."""
        import numpy as np

        on = np.flatnonzero(points.are_on)
        lines = Numbering.of(points.keys[on])
        levels = np.unique(points.places[on])
        codes = _codes(lines.numbers(points.keys[on]), levels, points.places[on])
        order = np.argsort(codes, kind="stable")
        # Of those that differ in their last bits alone, the last one.
        order = order[np.append(np.diff(codes[order]) > 0, np.ones(len(on[:1]), dtype=np.bool_))]
        rows = on[order]
        return cls(
            lines,
            levels,
            codes[order],
            points.places[rows],
            errors[rows],
            points.share * weights[rows],
        )

    def at(self, points: AxisPoints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the interpolated error at each place and its weight, 0 where there is no line."""
        import numpy as np

        lines = np.where(points.are_on, self.lines.numbers(points.keys), -1)
        are_known = lines >= 0
        if not np.any(are_known):
            return np.zeros(len(lines)), np.zeros(len(lines))
        lines, places = np.maximum(lines, 0), points.places
        first = self.codes.searchsorted(_first_code(lines, self.levels))
        last = self.codes.searchsorted(_first_code(lines + 1, self.levels)) - 1
        after = self.codes.searchsorted(_codes(lines, self.levels, places))
        above = np.minimum(after, last)
        are_measured = self.places[above] == places
        below = np.where(are_measured, above, np.maximum(after - 1, first))
        gap = self.places[above] - self.places[below]
        share = (places - self.places[below]) / np.where(gap > 0, gap, np.inf)
        errors = (1 - share) * self.errors[below] + share * self.errors[above]
        weights = np.minimum(self.weights[below], self.weights[above])
        weights = np.where((gap > 0) | are_measured, weights, _BEYOND * weights)
        return errors, np.where(are_known, weights, 0.0)


class Lines:
    """The lines of all axes, or of the network's conditions alone."""

    def __init__(
        self, cells: Cells, log_errors: NDArray[np.float64], *, only_conditions: bool = False
    ) -> None:
        """`log_errors`: ln(measured / predicted) of each cell: (n_cells,)."""
        import numpy as np

        columns = cells.columns
        gangs = _conditions(columns)[columns.are_gangs]
        self._varied = tuple(i for i, values in enumerate(gangs.T) if len(np.unique(values)) > 1)
        self._only_conditions = only_conditions
        self._number_of: dict[Names, int] = {}
        for family in columns.families:
            self._number_of.setdefault(family.names, len(self._number_of))
        self._lines = [
            AxisLines.of(points, log_errors, cells.weights) for points in self._axes(columns)
        ]

    def log_errors(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return the interpolated ln(measured / predicted) of each one: (n_configurations,)."""
        import numpy as np

        total, weights = np.zeros(len(columns)), np.zeros(len(columns))
        for lines, points in zip(self._lines, self._axes(columns), strict=True):
            errors, weight = lines.at(points)
            total += weight * errors
            weights += weight
        return total / np.where(weights > 0, weights, 1.0)

    def _axes(self, columns: FeatureColumns) -> list[AxisPoints]:
        import numpy as np

        numbers = [self._number_of.get(f.names, _UNMEASURED) for f in columns.families]
        names = columns.of_families(np.array(numbers, dtype=float))
        conditions = _conditions(columns)
        along_conditions = _condition_axes(columns, names, conditions, self._varied)
        if self._only_conditions:
            return along_conditions
        return [*_size_axes(columns, names, conditions), *along_conditions]


def _size_axes(
    columns: FeatureColumns, names: NDArray[np.float64], conditions: NDArray[np.float64]
) -> list[AxisPoints]:
    """Return the axes of batch and of world size, the latter twice: at the same per-replica and at
    the same global batch size.

    One machine is the first of a curve on every network, and knows none of them.
    """
    import numpy as np

    n, servers = columns.world_sizes, columns.server_counts
    everywhere = np.ones(len(columns), dtype=np.bool_)
    keys = np.column_stack([names, n, servers, conditions])
    found = [AxisPoints(keys, np.log(columns.batch_sizes), everywhere)]
    for batches in (columns.replica_batch_sizes, columns.batch_sizes):
        keys = np.column_stack([names, servers, batches, conditions])
        found.append(AxisPoints(keys, n, columns.are_gangs, share=0.5))
    return found


def _condition_axes(
    columns: FeatureColumns,
    names: NDArray[np.float64],
    conditions: NDArray[np.float64],
    varied: tuple[int, ...],
) -> list[AxisPoints]:
    """Return the axes of the conditions; `varied`: which of them are any."""
    import numpy as np

    sizes = [columns.world_sizes, columns.server_counts, columns.batch_sizes]
    found = []
    for i in varied:
        keys = np.column_stack([names, *sizes, np.delete(conditions, i, axis=1)])
        found.append(AxisPoints(keys, conditions[:, i], columns.are_gangs))
    return found


def _conditions(columns: FeatureColumns) -> NDArray[np.float64]:
    """Return how much there is of each of `CONDITIONS`, rounded: (n, len(CONDITIONS))."""
    import numpy as np

    found = np.empty((len(columns), len(CONDITIONS)))
    for amounts, name in zip(found.T, CONDITIONS, strict=True):
        values, which = np.unique(columns.condition(name), return_inverse=True)
        amounts[:] = np.array([rounded(v) for v in values])[which]
    return found


def _codes(
    lines: NDArray[np.int64], levels: NDArray[np.float64], places: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return numbers that ascend by line and then by place; those between two levels are equal, and
    as the level above.
    """
    codes: NDArray[np.int64] = _first_code(lines, levels) + levels.searchsorted(places)
    return codes


def _first_code(lines: NDArray[np.int64], levels: NDArray[np.float64]) -> NDArray[np.int64]:
    return lines * (len(levels) + 1)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbers of distinct rows, to look thousands of rows up at once.

    Rows are numbered one column after the other, so that what is looked up is always one number.

    `levels`: of each column its values, ascending. `codes`: with each column added, the number so
    far times the count of its levels, plus the position of its value.
    """

    levels: tuple[NDArray[np.float64], ...]
    codes: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> Numbering:
        """Number the distinct ones of (n, n_columns) from 0."""
        import numpy as np

        levels, codes = [], []
        numbers = np.zeros(len(rows), dtype=np.int64)
        for values in rows.T:
            own_levels, at = np.unique(values, return_inverse=True)
            own_codes, numbers = np.unique(numbers * len(own_levels) + at, return_inverse=True)
            levels.append(own_levels)
            codes.append(own_codes)
        return cls(tuple(levels), tuple(codes))

    def numbers(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of each row, (n,), and -1 of what is none of them."""
        import numpy as np

        numbers = np.zeros(len(rows), dtype=np.int64)
        are_known = np.ones(len(rows), dtype=np.bool_)
        for values, levels, codes in zip(rows.T, self.levels, self.codes, strict=True):
            if not len(levels):
                return np.full(len(rows), -1)
            at, are_levels = _find(levels, values)
            numbers, are_codes = _find(codes, numbers * len(levels) + at)
            are_known &= are_levels & are_codes
        return np.where(are_known, numbers, -1)


def _find(
    ascending: NDArray[np.float64] | NDArray[np.int64],
    values: NDArray[np.float64] | NDArray[np.int64],
) -> Found:
    """Return a position for each value and whether it is there."""
    import numpy as np

    at = np.minimum(ascending.searchsorted(values), len(ascending) - 1)
    return at, ascending[at] == values


class Neighbours:
    name = "neighbours"

    def fit(self, observations: Sequence[Observation]) -> FittedNeighbours:
        return FittedNeighbours(observations)


class FittedNeighbours:
    def __init__(self, observations: Sequence[Observation]) -> None:
        self._physical = FittedPhysical(observations)
        cells = cells_of(observations)
        parts_s = self._physical.parts_s(cells.columns)
        self._lines = Lines(cells, cells.logs - self._physical.logs_of(parts_s))

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, equally_doubtful(self._times_s))

    def _times_s(self, columns: FeatureColumns) -> NDArray[np.float64]:
        import numpy as np

        errors = self._lines.log_errors(columns)
        times_s: NDArray[np.float64] = self._physical.times_s(columns) * np.exp(errors)
        return times_s
