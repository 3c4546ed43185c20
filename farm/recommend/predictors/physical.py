"""Predicts step time as a physical sum of work, exchange and waiting, fitted to measurements.

No coefficient is negative, so the sum grows with batch, delay and bytes. It scales with the times
that it was fitted to. Coefficients are fitted from the general to the special: first to all
measurements, then to those of one model, of one data set and so on (`_TREE`). Groups differ mainly
in scale, so the coefficients of a group are pulled a little towards its parent's coefficients times
one factor. Relative errors are minimised, and outliers count less. If the measurements cannot
separate two terms, a replica's work is preferred to exchange, and a straight line to a bend.

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

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import NAMES, KnownConditions, canonical, names_of
from farm.recommend.predictors.columns import LEAST_WEIGHT, FeatureColumns, Names
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import equally_doubtful, estimates
from farm.recommend.predictors.least_squares import (
    LEAST_RATIO,
    Prior,
    Rows,
    median,
    robust,
    scales,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# How strongly coefficients are drawn to 0, and in a group to its parent's: the weight of so many
# measurements. It is little: Graur's curves have one measurement at each world size and say what
# they say with little noise.
_ROOT_SHRINKAGE, _SHRINKAGE = 0.1, 0.0003
# The same relative to the exchange: what is not told apart shall be work, and straight.
_ROOT_WORK_RATIO, _BEND_RATIO = 0.01, 3.0
# A coefficient of a group is off by a factor of what its parent has, so what is a small share of
# the time there stays small; of this share, where its parent has less.
_LEAST_SHARE = 0.3
# How a measurement of one machine counts for strategies that have none of their own.
_ADOPTED_WEIGHT = 0.1
# Networks are no groups, since one machine belongs to all of them, but have terms of their own.
_TREE = (
    *("model", "dataset", "framework", "instance_type", "strategy", "setup"),
    "training_pass",
)
assert {*_TREE, "network"} == set(NAMES)
_of_tree = operator.itemgetter(*(NAMES.index(name) for name in _TREE))

_Path = tuple[object, ...]

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
        """Return those of canonical configurations (see `features.canonical`)."""
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


class Physical:
    """The physical sum alone: right in its limits, crude between them."""

    name = "physical"

    def fit(self, observations: Sequence[Observation]) -> FittedPhysical:
        return FittedPhysical(observations)


class FittedPhysical:
    """The coefficients of every group of measurements, from the general to the special."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        import numpy as np

        self.known = KnownConditions.of(observations)
        # Sums that were added up in another order differ in their last bits, and reweighting may
        # make more of that.
        observations = sorted(
            observations,
            key=lambda observation: (
                repr(observation.configuration),
                observation.step_time_s,
                observation.weight,
            ),
        )
        own_count = len(observations)
        observations = [*observations, *_adopted(observations)]
        configurations = [canonical(o.configuration) for o in observations]
        self._terms = ModelTerms.of(configurations)
        self._coefficients: dict[_Path, NDArray[np.float64]] = {}
        self._least_s = 0.0
        if observations:
            times_s = np.array([o.step_time_s for o in observations])
            weights = np.maximum([o.weight for o in observations], LEAST_WEIGHT)
            self._least_s = LEAST_RATIO * float(np.min(times_s))
            self._fit(configurations, times_s, weights, own_count)

    def _fit(
        self,
        configurations: Sequence[Configuration],
        times_s: NDArray[np.float64],
        weights: NDArray[np.float64],
        own_count: int,
    ) -> None:
        import numpy as np

        terms = self._terms.values(FeatureColumns.of(configurations)) / times_s[:, None]
        kinds = self._terms.kinds
        # A coefficient is as far from its parent's as that changes the times, relatively.
        effects = np.sqrt(np.average(terms**2, axis=0, weights=weights))
        effects[kinds == BEND] *= _BEND_RATIO**0.5
        paths = [_paths(names_of(c)) for c in configurations]
        groups = _groups(paths, own_count)
        for path, members in groups.items():
            if path and members == groups[path[:-1]]:
                self._coefficients[path] = self._coefficients[path[:-1]]
                continue
            rows = Rows(terms[members], weights[members])
            if path:
                parent = self._coefficients[path[:-1]]
                parent = parent / median(rows.terms @ parent, rows.weights)
                shares = np.clip(parent * effects, _LEAST_SHARE, 1.0)
                pull = effects / shares * _SHRINKAGE**0.5
            else:
                parent = np.zeros(len(kinds))
                ratios = np.where(kinds == WORK, _ROOT_WORK_RATIO, 1.0)
                pull = effects * np.sqrt(_ROOT_SHRINKAGE * ratios)
            prior = Prior(self._target(parent, rows.terms), pull)
            children = _children([paths[member] for member in members], len(path))
            factors = scales(rows, prior, children)
            self._coefficients[path] = robust(rows.scaled(factors), prior)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self.known, configurations, equally_doubtful(self.times_s))

    def times_s(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return the sum for each, whether something is known of it or not; above 0."""
        return self.times_of(self.parts_s(columns))

    def times_of(self, parts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what `parts_s` returned; above 0."""
        import numpy as np

        times_s: NDArray[np.float64] = np.maximum(np.sum(parts_s, axis=1), self._least_s)
        return times_s

    def logs_of(self, parts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ln(time) likewise."""
        import numpy as np

        logs: NDArray[np.float64] = np.log(self.times_of(parts_s))
        return logs

    def parts_s(self, columns: FeatureColumns) -> NDArray[np.float64]:
        """Return how much of each time is work, exchange and waiting: (n, len(PARTS))."""
        import numpy as np

        if not len(columns):
            return np.zeros((0, len(PARTS)))
        coefficients = [self._nearest(family.names) for family in columns.families]
        return self._terms.parts(self._terms.values(columns) * columns.of_families(coefficients))

    def _target(
        self, parent: NDArray[np.float64], terms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return to what a group's coefficients are drawn, and what they are where it says nothing.

        Its parent's, but bends are its own: they may lie at other world sizes. On a network that
        the group was never measured on all is as for its parent.
        """
        import numpy as np

        target, kinds = parent.copy(), self._terms.kinds
        for block in self._terms.of_networks:
            if np.any(terms[:, block] > 0):
                target[block] = np.where(kinds[block] == BEND, 0.0, target[block])
        return target

    def _nearest(self, names: Names) -> NDArray[np.float64]:
        """Return the coefficients of the most special group that the names belong to."""
        return [self._coefficients[p] for p in _paths(names) if p in self._coefficients][-1]


def _children(paths: Sequence[Sequence[_Path]], depth: int) -> list[_Path]:
    """Return to which of the groups below each of the paths belongs, where they first part."""
    for deeper in range(depth + 1, len(_TREE)):
        if len({own[deeper] for own in paths}) > 1:
            return [own[deeper] for own in paths]
    return [own[-1] for own in paths]


def _paths(names: Names) -> list[_Path]:
    """Return the groups that a configuration belongs to, from all to the most special one."""
    values = _of_tree(names)
    return [values[:depth] for depth in range(len(values) + 1)]


def _adopted(observations: Sequence[Observation]) -> list[Observation]:
    """Return one machine's measurements as those of the strategies that lack them.

    What a replica does is much the same whatever the strategy, and some, such as a ring, cannot be
    measured on one machine at all. It is not in another precision or on another device, so that
    those of the same options come before others.
    """
    alone = [o for o in observations if o.configuration.is_one_machine]
    gangs = [o.configuration for o in observations if not o.configuration.is_one_machine]
    lacking = {(_kind(c), c.strategy, c.setup) for c in gangs}
    measured = {_place(o.configuration) for o in alone}
    setups = {o.configuration.setup for o in alone} | {setup for *_, setup in lacking}
    ways = {setup: setup.of_one_machine for setup in setups}
    found = []
    for kind, strategy, setup in sorted(lacking, key=repr):
        of_kind = [o for o in alone if _kind(o.configuration) == kind]
        alike = [o for o in of_kind if ways[o.configuration.setup] == ways[setup]]
        for o in alike or of_kind:
            c = dataclasses.replace(o.configuration, strategy=strategy, setup=setup)
            if _place(c) not in measured:
                weight = _ADOPTED_WEIGHT * o.weight
                found.append(dataclasses.replace(o, configuration=c, weight=weight))
    return found


def _kind(c: Configuration) -> tuple[object, ...]:
    return c.model, c.dataset, c.framework, c.instance_type, c.training_pass


def _place(c: Configuration) -> tuple[object, ...]:
    return _kind(c), c.strategy, c.setup, c.global_batch_size


def _groups(paths: Sequence[Sequence[_Path]], own_count: int) -> dict[_Path, list[int]]:
    """Return the rows of each group, parents first."""
    groups: dict[_Path, list[int]] = {}
    for row, own in enumerate(paths):
        for path in own if row < own_count else own[_TREE.index("strategy") + 1 :]:
            groups.setdefault(path, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: len(item[0])))
