"""Covariances of what a physical sum leaves over in ln(time), and their gradients.

A component is  s^2 · prod_f K(|x - x'| / l_f) · exp(-sum_m a_m [m differs]) · (w · w'),  with a
deviation s, smooth kernels K of numeric features, names m, and, where it is about one part of the
sum, that part's shares w of the two times: an error of ln(part) changes ln(time) by its share.
Parameters are the logarithms of s, l_f and a_m, in that order, one component after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration
from farm.recommend.features import CONDITIONS, NAMES, amounts, column

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A network that one machine has none of, and a name that was not measured.
_NO_NETWORK, _UNMEASURED = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Where the fit of the parameters starts. `smoothness`: of the Matern kernel, 1.5 or 2.5.

    `lengths`: by feature, or `condition` for every condition of the network. `name_distance`: a of
    each name; None: all names have it in common. `part`: of `physical.PARTS`, or None.
    """

    deviation: float
    lengths: Mapping[str, float]
    smoothness: float
    name_distance: float | None
    part: int | None = None


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


class Kernel:
    """The sum of components over points of one frame."""

    def __init__(self, components: Sequence[Component], frame: Frame) -> None:
        self._components = tuple(components)
        self._names = tuple(frame.levels)
        self._lengths = tuple(
            {f: value for f in frame.features if (value := _length(c, f)) is not None}
            for c in components
        )

    def start(self) -> NDArray[np.float64]:
        """Return the parameters where the fit starts."""
        import numpy as np

        values: list[float] = []
        for component, lengths in zip(self._components, self._lengths, strict=True):
            values += [component.deviation, *lengths.values()]
            if component.name_distance is not None:
                values += [component.name_distance] * len(self._names)
        logarithms: NDArray[np.float64] = np.log(np.array(values))
        return logarithms

    def between(
        self, parameters: NDArray[np.float64], these: Points, those: Points
    ) -> NDArray[np.float64]:
        """Return the covariances: (n_these, n_those)."""
        return self.with_gradient(parameters, Distances.of(these, those), is_needed=False)[0]

    def variances(self, parameters: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
        """Return the diagonal of the covariances of points with themselves: (n,)."""
        import numpy as np

        total = np.zeros(len(points.shares))
        position = 0
        for component, lengths in zip(self._components, self._lengths, strict=True):
            variance = math.exp(2 * parameters[position])
            share = 1.0 if component.part is None else points.shares[:, component.part] ** 2
            total += variance * share
            position += 1 + len(lengths)
            position += 0 if component.name_distance is None else len(self._names)
        return total

    def with_gradient(
        self, parameters: NDArray[np.float64], distances: Distances, *, is_needed: bool = True
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """Return the covariances and their derivatives by each parameter."""
        import numpy as np

        total = np.zeros(distances.shape)
        gradient: list[NDArray[np.float64]] = []
        position = 0
        for component, lengths in zip(self._components, self._lengths, strict=True):
            deviation = parameters[position]
            widths = np.exp(-2 * parameters[position + 1 : position + 1 + len(lengths)])
            position += 1 + len(lengths)
            squares = np.zeros(distances.shape)
            for width, feature in zip(widths, lengths, strict=True):
                squares += width * distances.squares[feature]
            value, slope = _matern(squares, component.smoothness)
            factor = np.full(distances.shape, math.exp(2 * deviation))
            if component.part is not None:
                factor *= distances.shares[component.part]
            names = () if component.name_distance is None else self._names
            rates = np.exp(parameters[position : position + len(names)])
            position += len(names)
            if names:
                apart = sum(
                    rate * distances.differs[name] for rate, name in zip(rates, names, strict=True)
                )
                factor *= np.exp(-apart)
            covariance = factor * value
            total += covariance
            if is_needed:
                gradient.append(2 * covariance)
                steep = factor * slope
                gradient += [
                    -2 * width * steep * distances.squares[feature]
                    for width, feature in zip(widths, lengths, strict=True)
                ]
                gradient += [
                    -rate * covariance * distances.differs[name]
                    for rate, name in zip(rates, names, strict=True)
                ]
        return total, gradient


@dataclass(frozen=True, slots=True)
class Distances:
    """How far points are apart, by feature squared, by name, and the products of their shares."""

    shape: tuple[int, int]
    squares: dict[str, NDArray[np.float64]]
    differs: dict[str, NDArray[np.float64]]
    shares: list[NDArray[np.float64]]

    @classmethod
    def of(cls, these: Points, those: Points) -> Distances:
        import numpy as np

        return cls(
            (len(these.shares), len(those.shares)),
            {f: np.subtract.outer(x, those.numbers[f]) ** 2 for f, x in these.numbers.items()},
            {m: np.not_equal.outer(x, those.names[m]) * 1.0 for m, x in these.names.items()},
            [np.outer(a, b) for a, b in zip(these.shares.T, those.shares.T, strict=True)],
        )


def _length(component: Component, feature: str) -> float | None:
    general = "condition" if feature in CONDITIONS else feature
    return component.lengths.get(general)


def _matern(
    squares: NDArray[np.float64], smoothness: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Matern kernel of squared distances, and its slope by them."""
    import numpy as np

    assert smoothness in (1.5, 2.5)
    far = np.sqrt(2 * smoothness * squares)
    falling = np.exp(-far)
    if smoothness == 1.5:
        return (1 + far) * falling, -1.5 * falling
    return (1 + far + far**2 / 3) * falling, -(5 / 6) * (1 + far) * falling
