"""The covariance function of the Gaussian process, with its gradients.

A component is  s^2 · prod_f K(|x - x'| / l_f) · exp(-sum_m a_m [m differs]) · (w · w'),  with a
deviation s, smooth kernels K of numeric features, names m, and, where it is about one part of the
sum, that part's shares w of the two times: an error of ln(part) changes ln(time) by its share.
Parameters are the logarithms of s, l_f and a_m, in that order, one component after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.predictors.points import OF_FAMILIES, Distances, Frame, Points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Slopes = Callable[[NDArray[np.float64]], list[float]]


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
        self._name_count = len(frame.levels)
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
                values += [component.name_distance] * self._name_count
        logarithms: NDArray[np.float64] = np.log(np.array(values))
        return logarithms

    def tuned(self, parameters: NDArray[np.float64]) -> list[Tuned]:
        """Return the components with their parameters."""
        import numpy as np

        found = []
        position = 0
        for component, lengths in zip(self._components, self._lengths, strict=True):
            variance = math.exp(2 * parameters[position])
            used = [self._features.index(feature) for feature in lengths]
            widths = np.zeros(len(self._features))
            widths[used] = np.exp(-2 * parameters[position + 1 : position + 1 + len(used)])
            position += 1 + len(used)
            rates = None
            if component.name_distance is not None:
                rates = np.exp(parameters[position : position + self._name_count])
                position += self._name_count
            is_of_families = set(lengths) <= set(OF_FAMILIES)
            found.append(Tuned(component, variance, widths, tuple(used), rates, is_of_families))
        return found

    def between(
        self, parameters: NDArray[np.float64], these: Points, those: Points
    ) -> NDArray[np.float64]:
        """Return the covariances: (n_these, n_those)."""
        import numpy as np

        distances = Distances.of(these, those)
        total = np.zeros(distances.shape)
        for component in self.tuned(parameters):
            total += component.covariances(distances, component.values(distances))
        return total

    def variances(self, parameters: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
        """Return the diagonal of the covariances of points with themselves: (n,)."""
        import numpy as np

        total = np.zeros(len(points))
        for component in self.tuned(parameters):
            part = component.component.part
            total += component.variance * (1.0 if part is None else points.shares[:, part] ** 2)
        return total

    def with_slopes(
        self, parameters: NDArray[np.float64], distances: Distances
    ) -> tuple[NDArray[np.float64], Slopes]:
        """Return the covariances K and a function of changes, (n, m), that returns
        sum_ij change_ij dK_ij / dp  for each parameter p.
        """
        import numpy as np

        total = np.zeros(distances.shape)
        known = []
        for component in self.tuned(parameters):
            values, slopes = component.values_and_slopes(distances)
            total += component.covariances(distances, values)
            known.append((component, values, slopes))

        def of_change(change: NDArray[np.float64]) -> list[float]:
            return [
                slope
                for component, values, slopes in known
                for slope in component.slopes(distances, change, values=values, slopes=slopes)
            ]

        return total, of_change


@dataclass(frozen=True, slots=True)
class Tuned:
    """A component with its parameters.

    `widths`: 1 / length^2 of every feature, of which `used` are the component's; `rates`: a by
    name. `is_of_families`: it has no other features than a family has, so that its values are
    worked out for families, (families, families), and else for points, (n, m).
    """

    component: Component
    variance: float
    widths: NDArray[np.float64]
    used: tuple[int, ...]
    rates: NDArray[np.float64] | None
    is_of_families: bool

    def values(self, distances: Distances) -> NDArray[np.float64]:
        """Return its covariances but for the shares."""
        far = self._far(distances)
        return _matern(far, _falling(far), self.component.smoothness) * self._factor(distances)

    def values_and_slopes(
        self, distances: Distances
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return these and their slopes by the squared distance."""
        far, factor = self._far(distances), self._factor(distances)
        falling = _falling(far)
        values = _matern(far, falling, self.component.smoothness)
        slopes = _matern_slope(far, falling, self.component.smoothness)
        return values * factor, slopes * factor

    def covariances(self, distances: Distances, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what `values` are of points, with the shares: (n, m)."""
        if self.is_of_families:
            values = distances.spread(values)
        part = self.component.part
        return values if part is None else distances.shared(values, part)

    def slopes(
        self,
        distances: Distances,
        change: NDArray[np.float64],
        *,
        values: NDArray[np.float64],
        slopes: NDArray[np.float64],
    ) -> list[float]:
        """Return sum_ij change_ij dK_ij / dp for each of its parameters p."""
        import numpy as np

        if self.component.part is not None:
            change = distances.shared(change, self.component.part)
        if self.is_of_families:
            change = distances.gathered(change)
        by_value = change * values
        sums = np.tensordot(self._squares(distances), change * slopes, axes=2)
        found = [2 * float(np.sum(by_value))]
        found += [float(-2 * self.widths[i] * sums[i]) for i in self.used]
        if self.rates is not None:
            by_family = by_value if self.is_of_families else distances.gathered(by_value)
            found += list(-self.rates * np.tensordot(distances.differs, by_family, axes=2))
        return found

    def _squares(self, distances: Distances) -> NDArray[np.float64]:
        return distances.family_squares if self.is_of_families else distances.squares

    def _far(self, distances: Distances) -> NDArray[np.float64]:
        """Return (2 smoothness)^0.5 times the distances."""
        import numpy as np

        widths = 2 * self.component.smoothness * self.widths
        squares: NDArray[np.float64] = np.tensordot(widths, self._squares(distances), axes=1)
        return np.sqrt(squares, out=squares)

    def _factor(self, distances: Distances) -> NDArray[np.float64] | float:
        import numpy as np

        if self.rates is None:
            return self.variance
        apart = np.tensordot(self.rates, distances.differs, axes=1)
        factor: NDArray[np.float64] = self.variance * np.exp(-apart)
        return factor if self.is_of_families else distances.spread(factor)


def _length(component: Component, feature: str) -> float | None:
    general = "condition" if feature in CONDITIONS else feature
    return component.lengths.get(general)


def _falling(far: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    falling: NDArray[np.float64] = np.negative(far)
    return np.exp(falling, out=falling)


def _matern(
    far: NDArray[np.float64], falling: NDArray[np.float64], smoothness: float
) -> NDArray[np.float64]:
    """Return the Matern kernel: `far` is (2 smoothness)^0.5 times the distance, `falling` exp of
    its negative.
    """
    assert smoothness in (1.5, 2.5)
    found = far + 1
    if smoothness == 2.5:
        found += far**2 / 3
    found *= falling
    return found


def _matern_slope(
    far: NDArray[np.float64], falling: NDArray[np.float64], smoothness: float
) -> NDArray[np.float64]:
    """Return the kernel's slope by the squared distance."""
    if smoothness == 1.5:
        return -1.5 * falling
    return -(5 / 6) * (1 + far) * falling
