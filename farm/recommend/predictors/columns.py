"""Arrays of many configurations, for vectorised computation.

Configurations of one family differ only in the axes: the global batch size and the network's
conditions. There are few families, so values that depend on the family alone are computed once.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import LIMIT_CONDITIONS, NAMES, canonical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Inverting costs their number's cube, thirty times over; see docs/recommender.md.
_MAX_CELLS = 1500
LEAST_WEIGHT = 1e-3  # so that nothing is divided by 0

Names = tuple[object, ...]  # the values of `features.NAMES`, in that order

NUMERIC_FEATURES = ("global_batch_size", *CONDITIONS)
_LIMITS = [NUMERIC_FEATURES.index(name) for name in CONDITIONS if name in LIMIT_CONDITIONS]
_place = operator.attrgetter(*NUMERIC_FEATURES)
_family = operator.attrgetter("world_size", "server_count", *NAMES)


@dataclass(frozen=True, slots=True)
class Family:
    """All of a configuration but its place on the axes."""

    world_size: int
    server_count: int
    names: Names

    @property
    def is_one_machine(self) -> bool:
        return self.world_size == 1 and self.server_count == 0


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """n configurations: `family_of`: (n,), which family each is of; `places`: (n, features).

    Places are the NUMERIC_FEATURES in base units: of a limit its inverse, so that 0 is none. One
    machine has 0 of each condition and no network.
    """

    families: tuple[Family, ...]
    family_of: NDArray[np.int64]
    places: NDArray[np.float64]

    @classmethod
    def of(cls, configurations: Sequence[Configuration]) -> FeatureColumns:
        """Make the columns of configurations, in their order."""
        import numpy as np

        ours = [canonical(c) for c in configurations]
        numbers: dict[tuple[Any, ...], int] = {}
        family_of = [numbers.setdefault(_family(c), len(numbers)) for c in ours]
        places = np.array([_place(c) for c in ours], dtype=float).reshape(-1, len(NUMERIC_FEATURES))
        limits = places[:, _LIMITS]  # None became NaN
        places[:, _LIMITS] = np.where(np.isnan(limits), 0.0, 1 / limits)
        return cls(
            tuple(Family(n, servers, tuple(names)) for n, servers, *names in numbers),
            np.array(family_of, dtype=np.int64),
            places,
        )

    def __len__(self) -> int:
        return len(self.family_of)

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> FeatureColumns:
        """Return some of them."""
        return FeatureColumns(self.families, self.family_of[rows], self.places[rows])

    def placed(self, places: NDArray[np.float64]) -> FeatureColumns:
        """Return the same families at other places."""
        return dataclasses.replace(self, places=places)

    def of_families(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Return what each one's family has: `values` is by family."""
        import numpy as np

        return np.asarray(values)[self.family_of]

    @property
    def world_sizes(self) -> NDArray[np.float64]:
        return self.of_families([float(family.world_size) for family in self.families])

    @property
    def server_counts(self) -> NDArray[np.float64]:
        return self.of_families([float(family.server_count) for family in self.families])

    @property
    def are_gangs(self) -> NDArray[np.bool_]:
        """Whether each is more than one machine."""
        import numpy as np

        are_gangs = [not family.is_one_machine for family in self.families]
        return self.of_families(np.array(are_gangs, dtype=np.bool_))

    @property
    def batch_sizes(self) -> NDArray[np.float64]:
        """The global ones."""
        return self.places[:, 0]

    @property
    def replica_batch_sizes(self) -> NDArray[np.float64]:
        return self.batch_sizes / self.world_sizes

    def condition(self, name: str) -> NDArray[np.float64]:
        """Return how much of a condition of the network each has."""
        return self.places[:, NUMERIC_FEATURES.index(name)]


@dataclass(frozen=True, slots=True)
class Cells:
    """n configurations, canonical and distinct, the mean of ln(time) of each and its weight.

    `columns`: the same configurations.
    """

    configurations: tuple[Configuration, ...]
    columns: FeatureColumns
    logs: NDArray[np.float64]
    weights: NDArray[np.float64]


def cells_of(observations: Sequence[Observation]) -> Cells:
    """Pool repetitions, in an order that does not depend on that of the observations.

    Of more than `MAX_CELLS` configurations so many are taken, evenly over that order.
    """
    import numpy as np

    groups: dict[Configuration, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(canonical(observation.configuration), []).append(observation)
    ordered = sorted(groups, key=repr)
    kept = [ordered[i] for i in spread(len(ordered), _MAX_CELLS)]
    logs, weights = np.zeros(len(kept)), np.zeros(len(kept))
    for i, configuration in enumerate(kept):
        own = [
            (math.log(o.step_time_s), max(o.weight, LEAST_WEIGHT)) for o in groups[configuration]
        ]
        weights[i] = math.fsum(weight for _, weight in own)
        logs[i] = math.fsum(log * weight for log, weight in own) / weights[i]
    return Cells(tuple(kept), FeatureColumns.of(kept), logs, weights)


def spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most that many positions of `count`, evenly, with the first and the last."""
    import numpy as np

    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.linspace(0, count - 1, most).round().astype(np.int64)
