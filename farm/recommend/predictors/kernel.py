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

from farm.recommend.features import CONDITIONS
from farm.recommend.predictors.points import Distances, Frame, Points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Where the fit of the parameters starts. `smoothness`: of the Matern kernel, 1.5 or 2.5.

    `lengths`: by feature, or `condition` for every condition of the network. `name_distance`: a of
    each name; None: all names have it in common. `part`: of `terms.PARTS`, or None.
    """

    deviation: float
    lengths: Mapping[str, float]
    smoothness: float
    name_distance: float | None
    part: int | None = None


class Kernel:
    """The sum of components over points of one frame."""

    def __init__(self, components: Sequence[Component], frame: Frame) -> None:
        self._components = tuple(components)
        self._names = tuple(frame.levels)
        self._features = frame.features
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
        return self.covariances(parameters, Distances.of(these, those), with_slopes=False)[0]

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

    def covariances(
        self, parameters: NDArray[np.float64], distances: Distances, *, with_slopes: bool
    ) -> tuple[NDArray[np.float64], list[Part]]:
        """Return the covariances and, if asked for, what the slopes of each component need."""
        import numpy as np

        total = np.zeros(distances.shape)
        parts: list[Part] = []
        position = 0
        for component, lengths in zip(self._components, self._lengths, strict=True):
            variance = math.exp(2 * parameters[position])
            widths = np.zeros(len(self._features))
            used = [self._features.index(feature) for feature in lengths]
            widths[used] = np.exp(-2 * parameters[position + 1 : position + 1 + len(lengths)])
            position += 1 + len(lengths)
            squares = np.tensordot(widths, distances.squares, axes=1)
            factor: NDArray[np.float64] | float = variance
            rates = np.zeros(0)
            if component.name_distance is not None:
                rates = np.exp(parameters[position : position + len(self._names)])
                position += len(self._names)
                factor = distances.spread(variance * np.exp(-distances.apart(rates)))
            if component.part is not None:
                factor = factor * distances.shares[component.part]
            value, falling = _matern(squares, component.smoothness)
            value *= factor
            total += value
            if with_slopes:
                slope = _matern_slope(squares, falling, component.smoothness) * factor
                parts.append(Part(value, slope, widths, tuple(used), rates))
        return total, parts

    def slopes(
        self, parts: Sequence[Part], distances: Distances, change: NDArray[np.float64]
    ) -> list[float]:
        """Return sum_ij change_ij dK_ij / dp for each parameter p."""
        import numpy as np

        found: list[float] = []
        for part in parts:
            by_value = change * part.covariances
            found.append(2 * float(np.sum(by_value)))
            by_slope = change * part.slopes
            sums = np.tensordot(distances.squares, by_slope, axes=2)
            found += [float(-2 * part.widths[i] * sums[i]) for i in part.used]
            if len(part.rates):
                found += list(-part.rates * distances.differing(by_value))
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """A component's covariances and their slopes by the squared distance, and its parameters.

    `widths`: of every feature, 1 / length^2, of which `used` are the component's; `rates`: by name.
    """

    covariances: NDArray[np.float64]
    slopes: NDArray[np.float64]
    widths: NDArray[np.float64]
    used: tuple[int, ...]
    rates: NDArray[np.float64]


def _length(component: Component, feature: str) -> float | None:
    general = "condition" if feature in CONDITIONS else feature
    return component.lengths.get(general)


def _matern(
    squares: NDArray[np.float64], smoothness: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Matern kernel of squared distances x, and exp(-(2 smoothness x)^0.5)."""
    import numpy as np

    assert smoothness in (1.5, 2.5)
    far = np.sqrt(2 * smoothness * squares)
    falling = np.exp(-far)
    if smoothness == 2.5:
        far += far**2 / 3
    far += 1
    far *= falling
    return far, falling


def _matern_slope(
    squares: NDArray[np.float64], falling: NDArray[np.float64], smoothness: float
) -> NDArray[np.float64]:
    """Return the kernel's slope by the squared distance."""
    import numpy as np

    if smoothness == 1.5:
        return -1.5 * falling
    slope: NDArray[np.float64] = -(5 / 6) * (1 + np.sqrt(5 * squares)) * falling
    return slope
