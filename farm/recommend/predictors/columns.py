"""Configurations as columns of numbers, since thousands of them are computed with at once.

A family is what differs in nothing but the axes: the global batch size and the conditions of the
network. There are few families, so what depends on them alone is worked out once for each.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farm.recommend.configuration import Configuration
from farm.recommend.features import CONDITIONS, NAMES, plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Names = tuple[object, ...]  # the values of `features.NAMES`, in that order

AXES = ("global_batch_size", *CONDITIONS)
_BANDWIDTH = AXES.index("bandwidth_bytes_per_s")
_place = operator.attrgetter(*AXES)
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
    """n configurations: which of the families each is of, (n,), and its places: (n, len(AXES)).

    Places are amounts in base units: of the bandwidth s per byte, so that 0 is no limit. One
    machine has 0 of each condition and no network.
    """

    families: tuple[Family, ...]
    family_of: NDArray[np.int64]
    places: NDArray[np.float64]

    @classmethod
    def of(cls, configurations: Sequence[Configuration]) -> FeatureColumns:
        import numpy as np

        ours = [plain(c) for c in configurations]
        numbers: dict[tuple[Any, ...], int] = {}
        family_of = [numbers.setdefault(_family(c), len(numbers)) for c in ours]
        places = np.array([_place(c) for c in ours], dtype=float).reshape(-1, len(AXES))
        limits = places[:, _BANDWIDTH]  # None became NaN
        places[:, _BANDWIDTH] = np.where(np.isnan(limits), 0.0, 1 / limits)
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
        return self.places[:, AXES.index(name)]
