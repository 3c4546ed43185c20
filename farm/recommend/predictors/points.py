"""Configurations as points of numbers and names, and the distances between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.features import NAMES
from farm.recommend.predictors.columns import Family, FeatureColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Features that a family has; the others are those of a place in it.
OF_FAMILIES = ("world_size", "servers")
# A network that one machine has none of, and a name that was not measured.
_NO_NETWORK, _UNMEASURED = -2, -1


@dataclass(frozen=True, slots=True)
class Points:
    """n configurations: their active features, (features, n), and shares of the parts, (n, parts).

    Families, `family_of` each, have the same of `OF_FAMILIES`: `family_numbers`, (features,
    families), whose other features mean nothing, and `family_names`, (names, families).
    """

    numbers: NDArray[np.float64]
    shares: NDArray[np.float64]
    family_of: NDArray[np.int64]
    family_numbers: NDArray[np.float64]
    family_names: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.family_of)

    def at(self, rows: NDArray[np.int64] | slice) -> Points:
        """Return some of them, with their families alone."""
        import numpy as np

        families, family_of = np.unique(self.family_of[rows], return_inverse=True)
        return Points(
            self.numbers[:, rows],
            self.shares[rows],
            family_of,
            self.family_numbers[:, families],
            self.family_names[:, families],
        )


@dataclass(frozen=True, slots=True)
class Frame:
    """What turns configurations into points: what varied where it was fitted, and typical values.

    `typical`: the median of each condition where there is one; a condition x becomes
    ln(1 + x / typical), so that only ratios matter. `levels`: by name, a number for each value.
    """

    typical: dict[str, float]
    levels: dict[str, dict[object, int]]
    features: tuple[str, ...]

    @classmethod
    def of(cls, columns: FeatureColumns) -> Frame:
        """Return the frame of what is varied in these columns."""
        import numpy as np

        typical = {}
        for name in CONDITIONS:
            found = columns.condition(name)
            if np.any(found > 0):
                typical[name] = float(np.median(found[found > 0]))
        levels: dict[str, dict[object, int]] = {}
        for i, name in enumerate(NAMES):
            values = {family.names[i] for family in columns.families}
            if len(values) > 1:
                levels[name] = {v: i for i, v in enumerate(sorted(values, key=repr))}
        frame = cls(typical, levels, ())
        numbers = frame._numbers(columns)
        varied = tuple(name for name, values in numbers.items() if np.ptp(values) > 0)
        return cls(typical, levels, varied)

    def points(self, columns: FeatureColumns, parts_s: NDArray[np.float64]) -> Points:
        """Return the points of configurations; `parts_s`: (n, parts), of a time of each."""
        import numpy as np

        totals_s = np.sum(parts_s, axis=1, keepdims=True)
        all_numbers = self._numbers(columns)
        numbers = np.array([all_numbers[name] for name in self.features])
        numbers = numbers.reshape(len(self.features), len(columns))
        of_families = np.zeros((len(self.features), len(columns.families)))
        of_families[:, columns.family_of] = numbers  # of any one of each
        names = [self._names(family) for family in columns.families]
        return Points(
            numbers,
            parts_s / np.where(totals_s > 0, totals_s, 1.0),
            columns.family_of,
            of_families,
            np.array(names, dtype=np.int64).reshape(len(names), len(self.levels)).T,
        )

    def _names(self, family: Family) -> list[int]:
        return [
            _NO_NETWORK
            if name == "network" and family.is_one_machine
            else level.get(family.names[NAMES.index(name)], _UNMEASURED)
            for name, level in self.levels.items()
        ]

    def _numbers(self, columns: FeatureColumns) -> dict[str, NDArray[np.float64]]:
        import numpy as np

        numbers = {
            "world_size": np.log2(columns.world_sizes),
            "batch": np.log2(columns.replica_batch_sizes),
            "servers": np.log2(1 + columns.server_counts),
        }
        for name, typical in self.typical.items():
            numbers[name] = np.log1p(columns.condition(name) / typical)
        return numbers


@dataclass(frozen=True, slots=True)
class Distances:
    """How far n points are from m others.

    `squares`: by feature, (features, n, m). `shares`: of these and of those, (n, parts) and
    (m, parts). There are few families, so these are compared once: `of_these`, (n,), and
    `of_those`, (m,), say which one each point is of, `family_squares`, (features, families,
    families), how far two of them are apart, and `differs`, (names, families, families), in what
    they differ.
    """

    squares: NDArray[np.float64]
    shares: tuple[NDArray[np.float64], NDArray[np.float64]]
    of_these: NDArray[np.int64]
    of_those: NDArray[np.int64]
    family_squares: NDArray[np.float64]
    differs: NDArray[np.float64]

    @classmethod
    def of(cls, these: Points, those: Points) -> Distances:
        names, other_names = these.family_names, those.family_names
        return cls(
            squares=_squares(these.numbers, those.numbers),
            shares=(these.shares, those.shares),
            of_these=these.family_of,
            of_those=those.family_of,
            family_squares=_squares(these.family_numbers, those.family_numbers),
            differs=(names[:, :, None] != other_names[:, None, :]).astype(float),
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.of_these), len(self.of_those)

    def shared(self, values: NDArray[np.float64], part: int) -> NDArray[np.float64]:
        """Return (n, m) values times the shares of that part in both points."""
        these, those = self.shares
        return values * these[:, part, None] * those[None, :, part]

    def spread(self, of_families: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of the two families for each pair of points: (n, m)."""
        return of_families[self.of_these][:, self.of_those]

    def gathered(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of (n, m) values over the pairs of points of each two families."""
        import numpy as np

        # Sorted, since sums over neighbours cost as much as the values and no more.
        these, those = np.argsort(self.of_these), np.argsort(self.of_those)
        first, first_of_those = (
            np.flatnonzero(np.diff(of[order], prepend=-1))
            for of, order in ((self.of_these, these), (self.of_those, those))
        )
        of_these = np.add.reduceat(values[these], first, axis=0)
        sums: NDArray[np.float64] = np.add.reduceat(of_these[:, those], first_of_those, axis=1)
        return sums


def _squares(these: NDArray[np.float64], those: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (these - those)^2 of (features, n) and (features, m): (features, n, m)."""
    import numpy as np

    squares: NDArray[np.float64] = these[:, :, None] - those[:, None, :]
    return np.square(squares, out=squares)
