"""The terms of a step's time, without their coefficients.

With n the world size, b the per-replica batch size, d the one-way delay in s, W the bandwidth in
bytes per s, j the jitter in s and p the share of lost packets:

    t = c0 + c1 b                                                          a replica's work
      + e0 + e1 (n-1)/n + e2 (n-1) + e3 log2 n + sum_k e_k max(0, n - k)   the exchange
      + b (f0 + f1 log2 n + sum_k f_k max(0, n - k))                       what it does to the work
      + x (g0 + g1 (n-1)/n + g2 (n-1))  for x in d, 1/W, j and p           the network's conditions
      + g3 d log2 n                                                        round trips of a tree

c0, e and those of p are in s, c1 and f in s per example, those of 1/W in bytes; those of d and j
are delays per step and have no unit. (n-1)/n is the share of its bytes that a ring sends, n-1 the
number of its messages and the load of one parameter server (Patarasuk and Yuan 2009); a tree takes
log2 n round trips. The knots k are the measured world sizes, so that a link or a server that fills
up bends the curve there, and beyond the largest one the last slope goes on. One machine has the
first line alone; the others have coefficients of their own on every network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration
from farm.recommend.features import NAMES
from farm.recommend.predictors.columns import FeatureColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PARTS = ("work", "exchange", "waiting")
# Kinds of terms: those of each part, and bends, which are a part of the exchange.
WORK, EXCHANGE, WAITING, BEND = range(4)
_NETWORK = NAMES.index("network")


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The terms on each of the networks, with bends at each of the knots."""

    networks: tuple[str | None, ...]
    knots: tuple[int, ...]

    @classmethod
    def of(cls, configurations: Sequence[Configuration]) -> ModelTerms:
        """Return those of plain configurations (`features.plain`)."""
        networks = {c.network for c in configurations if not c.is_one_machine}
        sizes = sorted({c.world_size for c in configurations} - {1})
        return cls(tuple(sorted(networks, key=repr)), tuple(sizes[:-1]))

    @property
    def kinds(self) -> NDArray[np.int64]:
        """The kind of each term: (n_terms,)."""
        import numpy as np

        bends = [BEND] * (2 + 2 * len(self.knots))
        gang = [*[EXCHANGE] * 4, *[WAITING] * (1 + 3 * len(CONDITIONS)), *bends]
        return np.array([WORK, WORK, *gang * len(self.networks)])

    @property
    def of_networks(self) -> list[NDArray[np.int64]]:
        """The positions of each network's terms."""
        import numpy as np

        return np.split(np.arange(2, len(self.kinds)), max(1, len(self.networks)))

    def values(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return the terms of n configurations: (n, n_terms)."""
        import numpy as np

        gang = _gang_values(columns, self.knots)
        blocks = [np.ones((len(columns), 1)), columns.replica_batch_sizes[:, None]]
        for network in self.networks:
            here = [family.names[_NETWORK] == network for family in columns.families]
            blocks.append(gang * columns.of_families(here)[:, None])
        return np.hstack(blocks)

    def parts(self, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up terms with their coefficients, (n, n_terms), by part: (n, len(PARTS))."""
        import numpy as np

        of_part = np.where(self.kinds == BEND, EXCHANGE, self.kinds)
        sums = [amounts[:, of_part == part].sum(axis=1) for part in range(len(PARTS))]
        return np.stack(sums, axis=1)


def _gang_values(columns: FeatureColumns, knots: Sequence[int]) -> NDArray[np.float64]:
    import numpy as np

    n, b = columns.world_sizes, columns.replica_batch_sizes
    gang = columns.are_gangs.astype(float)
    share, others, rounds = (n - 1) / n, n - 1, np.log2(n)
    bends = [np.maximum(n - knot, 0.0) for knot in knots]
    delay = columns.condition("one_way_delay_s")
    exchange = [gang, gang * share, others, rounds]
    waiting = [delay * rounds]
    for name in CONDITIONS:
        condition = columns.condition(name)
        waiting += [condition, condition * share, condition * others]
    bent = [gang * b, b * rounds, *(factor * bend for factor in (gang, b) for bend in bends)]
    return np.stack([*exchange, *waiting, *bent], axis=1)
