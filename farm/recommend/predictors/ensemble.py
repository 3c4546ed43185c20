"""The default predictor: the median of three, made so that more work or delay is never faster.

The three are two Gaussian processes, one of the total error and one of the errors of each term of
the sum, and the errors of the nearest measurements. They are wrong in different places, and the
median drops the one that disagrees. The remaining error of the median is interpolated between
measurements that differ in the network's conditions alone (`Lines`): a delay is hidden behind a
replica's work up to some point and costs in full beyond it, which a smooth process takes for an
outlier.

Predictions are projected onto functions that increase along these axes: on a grid of levels, the
mean of the smallest increasing function above and the largest one below. Between levels, times are
interpolated linearly in examples, seconds, seconds per byte and so on, in which the physical sum is
linear, too. Beyond the last level the growth of the physical sum is added, times one common factor.
Below the first level the time shrinks as the sum does. The sum has no products of its axes, so each
of these steps keeps the order, and it holds exactly for any two questions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.calibrated.novelty import keeps_replica_batch
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.columns import Cells, Family, FeatureColumns, cells_of, spread
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import Pairs, Times, estimates
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH, GaussianProcessFit
from farm.recommend.predictors.kernel import Kernel
from farm.recommend.predictors.neighbours import Lines
from farm.recommend.predictors.physical import FittedPhysical
from farm.recommend.predictors.points import Frame

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


class Ensemble:
    name = "ensemble"

    def fit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        return FittedEnsemble(observations)


class FittedEnsemble:
    """`like`: one whose processes' parameters are kept; None: learn them."""

    def __init__(
        self, observations: Sequence[Observation], *, like: FittedEnsemble | None = None
    ) -> None:
        import numpy as np

        self._physical = FittedPhysical(observations)
        cells = cells_of(observations)
        if not cells.configurations:
            return
        self._frame: Frame = Frame.of(cells.columns) if like is None else like._frame
        parts_s = self._physical.parts_s(cells.columns)
        points = self._frame.points(cells.columns, parts_s)
        errors = cells.logs - self._physical.logs_of(parts_s)
        self._processes: list[GaussianProcessFit] = (
            [
                GaussianProcessFit(
                    Kernel(components, self._frame), points, errors, weights=cells.weights
                )
                for components in (SMOOTH, BY_PART)
            ]
            if like is None
            else [
                process.refit(points, errors, weights=cells.weights) for process in like._processes
            ]
        )
        self._neighbours = Lines(cells, errors)
        own = [process.own_log_errors for process in self._processes]
        own.append(self._neighbours.log_errors(cells.columns))
        self._rest = Lines(cells, errors - np.median(own, axis=0), only_conditions=True)
        self._monotone = Monotone(cells)

    def refit(self, observations: Sequence[Observation]) -> FittedEnsemble:
        """Fit to a part of the observations; how smooth errors are is kept."""
        return FittedEnsemble(observations, like=self)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._physical.known, configurations, self._answers)

    def _answers(self, columns: FeatureColumns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        times_s = self._monotone.times_s(columns, self._corrected_s, self._physical.times_s)
        return times_s, self._scales(columns)

    def _corrected_s(
        self, columns: FeatureColumns
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is made monotone, and the physical sum."""
        import numpy as np

        parts_s = self._physical.parts_s(columns)
        points = self._frame.points(columns, parts_s)
        errors = [process.log_errors(points) for process in self._processes]
        errors.append(self._neighbours.log_errors(columns))
        sums_s = self._physical.times_of(parts_s)
        log_errors = np.median(errors, axis=0) + self._rest.log_errors(columns)
        return sums_s * np.exp(log_errors), sums_s

    def _scales(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return how unsure each process is and how far the members are apart, in ln(time)."""
        import numpy as np

        points = self._frame.points(columns, self._physical.parts_s(columns))
        normals = [process.normals(points) for process in self._processes]
        near = self._neighbours.log_errors(columns)
        apart = np.std([*(errors for errors, _ in normals), near], axis=0)
        own = np.mean([deviations**2 for _, deviations in normals], axis=0)
        scales: NDArray[np.float64] = np.sqrt(own + apart**2)
        return scales


@dataclass(frozen=True, slots=True)
class Slice:
    """A family: levels of each axis, in the units of `Columns.places`, and the times on their grid.

    `factor`: of the physical sum beyond the levels.
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

    def __init__(self, cells: Cells) -> None:
        import numpy as np

        columns = cells.columns
        self._is_weak = keeps_replica_batch(cells.configurations)
        batches = columns.replica_batch_sizes if self._is_weak else columns.batch_sizes
        inside = _levels(np.unique(batches), _MOST_BATCHES, ratio=_BATCH_RATIO)
        beyond = 2.0 ** np.arange(1, _OCTAVES_BEYOND + 1)
        self._batches = np.concatenate([inside[0] / beyond[::-1], inside, inside[-1] * beyond])
        gangs = columns.at(columns.are_gangs)
        measured = [np.unique(gangs.condition(name)) for name in CONDITIONS]
        varied = sum(len(values) > 1 for values in measured)
        most = _MOST_LEVELS[min(varied, len(_MOST_LEVELS)) - 1]
        self._conditions = tuple(_levels(values, most) for values in measured)
        self._slices: dict[Family, Slice] = {}

    def times_s(
        self, columns: FeatureColumns, both_s: Pairs, physical_s: Times
    ) -> NDArray[np.float64]:
        """Return the projected times.

        `both_s`: what is projected, and the physical sum that `physical_s` returns alone. They are
        the same functions at every call.
        """
        import numpy as np

        self._prepare(columns.families, both_s)
        slices = [self._slices[family] for family in columns.families]
        first = columns.of_families([[levels[0] for levels in part.levels] for part in slices])
        last = columns.of_families([[levels[-1] for levels in part.levels] for part in slices])
        raised = np.maximum(columns.places, first)
        edges = np.minimum(raised, last)
        at = zip(columns.family_of, edges, strict=True)
        found = np.array([slices[family].at(edge) for family, edge in at])
        above = np.flatnonzero(np.any(raised > edges * _EQUAL, axis=1))
        if len(above):
            beyond, edge = (
                columns.at(above).placed(raised[above]),
                columns.at(above).placed(edges[above]),
            )
            factors = beyond.of_families([part.factor for part in slices])
            found[above] += factors * (physical_s(beyond) - physical_s(edge))
        below = np.flatnonzero(np.any(columns.places * _EQUAL < raised, axis=1))
        if len(below):
            edge = columns.at(below).placed(raised[below])
            found[below] *= physical_s(columns.at(below)) / physical_s(edge)
        return found

    def _prepare(self, families: Sequence[Family], both_s: Pairs) -> None:
        import numpy as np

        if len(self._slices) > _MOST_SLICES:
            self._slices.clear()
        missing = tuple(family for family in families if family not in self._slices)
        if not missing:
            return
        grids = [self._grid(family) for family in missing]
        places = [np.array(list(itertools.product(*levels))) for levels in grids]
        counts = [len(own) for own in places]
        family_of = np.repeat(np.arange(len(missing)), counts)
        raw_s, sums_s = both_s(FeatureColumns(missing, family_of, np.concatenate(places)))
        ends = np.cumsum(counts)[:-1]
        for family, levels, raw, sums in zip(
            missing, grids, np.split(raw_s, ends), np.split(sums_s, ends), strict=True
        ):
            factor = float(np.median(raw / sums))
            self._slices[family] = Slice(
                levels,
                _projected(raw.reshape([len(axis) for axis in levels])),
                min(_MOST_FACTOR, max(_LEAST_FACTOR, factor)),
            )

    def _grid(self, family: Family) -> tuple[NDArray[np.float64], ...]:
        import numpy as np

        factor = family.world_size if self._is_weak else 1
        batches = np.unique(np.maximum(1.0, np.round(self._batches * factor)))
        if family.is_one_machine:
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
