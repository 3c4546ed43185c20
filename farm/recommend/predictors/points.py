"""Configurations as points in a space of numbers and names, and how far these are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration
from farm.recommend.features import CONDITIONS, NAMES, amounts, column

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A network that one machine has none of, and a name that was not measured.
_NO_NETWORK, _UNMEASURED = -2, -1


@dataclass(frozen=True, slots=True)
class Points:
    """n configurations: each active feature and name, (n,), and shares of the parts, (n, parts)."""

    numbers: dict[str, NDArray[np.float64]]
    names: dict[str, NDArray[np.int64]]
    shares: NDArray[np.float64]

    def at(self, rows: NDArray[np.int64]) -> Points:
        """Return some of them."""
        return Points(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: values[rows] for name, values in self.names.items()},
            self.shares[rows],
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
    def of(cls, configurations: Sequence[Configuration]) -> Frame:
        import numpy as np

        typical = {}
        for name in CONDITIONS:
            found = amounts(configurations, name)
            if np.any(found > 0):
                typical[name] = float(np.median(found[found > 0]))
        levels: dict[str, dict[object, int]] = {}
        for name in NAMES:
            values = {getattr(c, name) for c in configurations}
            if len(values) > 1:
                levels[name] = {v: i for i, v in enumerate(sorted(values, key=repr))}
        frame = cls(typical, levels, ())
        numbers = frame._numbers(configurations)
        varied = tuple(name for name, values in numbers.items() if np.ptp(values) > 0)
        return cls(typical, levels, varied)

    def points(
        self, configurations: Sequence[Configuration], shares: NDArray[np.float64]
    ) -> Points:
        """Return the points of plain configurations (`features.plain`)."""
        import numpy as np

        names = {}
        for name, level in self.levels.items():
            is_network = name == "network"
            names[name] = np.array(
                [
                    _NO_NETWORK
                    if is_network and c.is_one_machine
                    else level.get(getattr(c, name), _UNMEASURED)
                    for c in configurations
                ],
                dtype=np.int64,
            )
        numbers = self._numbers(configurations)
        return Points({name: numbers[name] for name in self.features}, names, shares)

    def _numbers(self, configurations: Sequence[Configuration]) -> dict[str, NDArray[np.float64]]:
        import numpy as np

        n = column(configurations, "world_size")
        numbers = {
            "world_size": np.log2(n),
            "batch": np.log2(column(configurations, "global_batch_size") / n),
            "servers": np.log2(1 + column(configurations, "server_count")),
        }
        for name, typical in self.typical.items():
            numbers[name] = np.log1p(amounts(configurations, name) / typical)
        return numbers


@dataclass(frozen=True, slots=True)
class Distances:
    """How far n points are from m others.

    `squares`: by feature, (features, n, m). `shares`: products, by part. There are few combinations
    of names, so these are compared once: `of_these`, (n,), and `of_those`, (m,), say which one each
    point has, and `differs`, (names, combinations, combinations), in what two of them differ.
    """

    squares: NDArray[np.float64]
    shares: list[NDArray[np.float64]]
    of_these: NDArray[np.int64]
    of_those: NDArray[np.int64]
    differs: NDArray[np.float64]

    @classmethod
    def of(cls, these: Points, those: Points) -> Distances:
        import numpy as np

        squares = np.empty((len(these.numbers), len(these.shares), len(those.shares)))
        for square, (feature, x) in zip(squares, these.numbers.items(), strict=True):
            np.subtract.outer(x, those.numbers[feature], out=square)
            np.square(square, out=square)
        names = [np.concatenate([own, those.names[m]]) for m, own in these.names.items()]
        rows = np.stack([*names, np.zeros(sum(squares.shape[1:]), dtype=np.int64)], axis=1)
        combinations, which = np.unique(rows, axis=0, return_inverse=True)
        which = which.reshape(-1)
        return cls(
            squares=squares,
            shares=[np.outer(a, b) for a, b in zip(these.shares.T, those.shares.T, strict=True)],
            of_these=which[: len(these.shares)],
            of_those=which[len(these.shares) :],
            differs=np.array([np.not_equal.outer(c, c) * 1.0 for c in combinations.T[:-1]]),
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.of_these), len(self.of_those)

    def apart(self, rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the rates of the names in which two combinations differ."""
        import numpy as np

        if not len(rates):
            return np.zeros((1, 1))
        found: NDArray[np.float64] = np.tensordot(rates, self.differs, axes=1)
        return found

    def spread(self, of_combinations: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of the two combinations for each pair of points: (n, m)."""
        return of_combinations[self.of_these][:, self.of_those]

    def differing(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of (n, m) values over the pairs that differ in each name."""
        import numpy as np

        each = np.eye(self.differs.shape[1])
        sums = each[self.of_these].T @ values @ each[self.of_those]
        found: NDArray[np.float64] = np.tensordot(self.differs, sums, axes=2)
        return found
