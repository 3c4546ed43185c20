"""A step as work, exchange and waiting: a sum of terms whose coefficients are at least 0.

With n the world size, b the per-replica batch size, d the one-way delay in s, W the bandwidth in
bytes per s, j the jitter in s and p the share of lost packets:

    t = c0 + c1 b                                                       a replica's work
      + e0 + e1 (n-1)/n + e2 (n-1) + e3 log2 n + sum_k e_k max(0, n - k)   the exchange
      + b (f0 + f1 log2 n + sum_k f_k max(0, n - k))                    waiting for the slowest
      + x (g0 + g1 (n-1)/n + g2 (n-1))  for x in d, 1/W, j, p and p d   the network's conditions
      + g3 d log2 n

(n-1)/n is the share of its bytes that a ring sends, n-1 the number of its messages and the load of
one parameter server (Patarasuk and Yuan 2009); a tree takes log2 n round trips. The knots k are the
measured world sizes, so that a link or a server that fills up bends the curve there, and beyond the
largest one the last slope goes on. One machine has the first line alone; the others have
coefficients of their own on every network. Nothing is negative, so the sum grows with batch, delay
and bytes; and it scales with the times that it was fitted to.

Coefficients are fitted from the general to the special: to everything, then to the measurements of
one model, of one framework and so on (`features.NAMES`), each group near its parent. Relative
errors are minimised; those beyond `_TUNING` standard deviations count less (Huber 1964). What the
data do not tell apart goes to the replica's work, not to the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import NAMES, Known, column, plain
from farm.recommend.predictors.contracts import PointEstimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PARTS = ("work", "exchange", "waiting")
# How strongly a group is drawn to its parent, in measurements, and everything to 0: work less, so
# that it explains what it can, and what bends a curve more.
_SHRINKAGE = 0.003
_ROOT_SHRINKAGE = 1.0
_ROOT_WORK_RATIO, _WORK_RATIO = 0.01, 0.1
_BEND_RATIO = 3.0
_TUNING = 1.5
_ROUNDS, _SCALING_ROUNDS = 4, 3
_LEAST_SPREAD = 0.01  # of relative errors: below it nobody is an outlier
_LEAST_RATIO = 1e-3  # of a fitted to a measured time, so that its logarithm exists
_WORK, _EXCHANGE, _WAITING, _BEND = range(4)  # kinds of terms; a bend is a part of the exchange
# The tree of groups: one network is not a group, since one machine belongs to all of them.
_TREE = (
    *("model", "dataset", "framework", "instance_type", "placement", "strategy"),
    "training_pass",
)
assert {*_TREE, "network"} == set(NAMES)

_Path = tuple[object, ...]


class Physical:
    """The physical sum alone: right in its limits, crude between them."""

    name = "physical"

    def fit(self, observations: Sequence[Observation]) -> FittedPhysical:
        return FittedPhysical(observations)


class FittedPhysical:
    """The coefficients of every group of measurements, from the general to the special."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        import numpy as np

        self._known = Known.of(observations)
        configurations = [plain(o.configuration) for o in observations]
        gangs = [c for c in configurations if not c.is_one_machine]
        self._networks = tuple(sorted({c.network for c in gangs}, key=repr))
        self._knots = tuple(sorted({c.world_size for c in configurations} - {1}))[:-1]
        self._coefficients: dict[_Path, NDArray[np.float64]] = {}
        self._least_s = 0.0
        if not observations:
            return
        times_s = np.array([o.step_time_s for o in observations])
        weights = np.array([o.weight for o in observations])
        terms, kinds = self._terms(configurations)
        terms = terms / times_s[:, None]
        self._least_s = _LEAST_RATIO * float(np.min(times_s))
        # A coefficient is as far from its parent's as it changes the times, relatively.
        scales = np.sqrt(np.average(terms**2, axis=0, weights=weights))
        groups = _groups(configurations)
        depths = [_paths(c) for c in configurations]
        for path, rows in groups.items():
            children = [paths[min(len(path) + 1, len(_TREE))] for paths in depths]
            if path and rows == groups[path[:-1]]:
                self._coefficients[path] = self._coefficients[path[:-1]]
                continue
            parent = self._coefficients[path[:-1]] if path else np.zeros(terms.shape[1])
            if path:
                parent = parent / _median(terms[rows] @ parent, weights[rows])
            pull = scales * (_SHRINKAGE if path else _ROOT_SHRINKAGE) ** 0.5
            pull[kinds == _WORK] *= (_WORK_RATIO if path else _ROOT_WORK_RATIO) ** 0.5
            pull[kinds == _BEND] *= _BEND_RATIO**0.5
            targets = self._targets(parent, kinds, terms[rows])
            own, trust = terms[rows], weights[rows]
            scaled = own * _scales(own, trust, targets, pull, [children[r] for r in rows])[:, None]
            self._coefficients[path] = _robust(scaled, trust, targets, pull)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._known, configurations, self.times_s)

    def times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return the sum for each, whether something is known of it or not; above 0."""
        return self.times_of(self.parts_s(configurations))

    def times_of(self, parts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what `parts_s` returned; above 0."""
        import numpy as np

        times_s: NDArray[np.float64] = np.maximum(np.sum(parts_s, axis=1), self._least_s)
        return times_s

    def parts_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return how much of each time is work, exchange and waiting: (n, len(PARTS))."""
        import numpy as np

        asked = [plain(c) for c in configurations]
        if not asked:
            return np.zeros((0, len(PARTS)))
        terms, kinds = self._terms(asked)
        amounts = terms * np.array([self._coefficients[self._nearest(c)] for c in asked])
        of_part = np.where(kinds == _BEND, _EXCHANGE, kinds)
        return np.stack([amounts[:, of_part == part].sum(axis=1) for part in range(3)], axis=1)

    def _targets(
        self, parent: NDArray[np.float64], kinds: NDArray[np.int64], terms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return to what a group's coefficients are drawn, and what they are where it says nothing.

        The parent's work; no exchange beyond what the data ask for. On a network, or under a
        condition, that the group was not measured with it behaves as its parent.
        """
        import numpy as np

        measured = np.any(terms > 0, axis=0)
        targets = parent.copy()
        size = (len(kinds) - 2) // max(1, len(self._networks))
        for start in range(2, len(kinds), max(1, size)):
            block = slice(start, start + size)
            if np.any(measured[block]):
                targets[block] = np.where(kinds[block] == _BEND, 0.0, targets[block])
        return targets

    def _nearest(self, configuration: Configuration) -> _Path:
        return [path for path in _paths(configuration) if path in self._coefficients][-1]

    def _terms(
        self, configurations: Sequence[Configuration]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the terms without coefficients, (n_configurations, n_terms), and their kinds."""
        import numpy as np

        n = column(configurations, "world_size")
        b = column(configurations, "global_batch_size") / n
        gang, kinds = _gang_terms(configurations, self._knots)
        blocks = [np.stack([np.ones_like(n), b], axis=1)]
        for network in self._networks:
            here = np.array([c.network == network for c in configurations], dtype=float)
            blocks.append(gang * here[:, None])
        return np.hstack(blocks), np.array([_WORK, _WORK, *kinds * len(self._networks)])


def estimates(
    known: Known,
    configurations: Sequence[Configuration],
    times_s: Callable[[Sequence[Configuration]], NDArray[np.float64]],
) -> list[PointEstimate]:
    """Ask for the times of those configurations of which something is known."""
    why = [known.why_unknown(c) for c in configurations]
    asked = [c for c, reason in zip(configurations, why, strict=True) if reason is None]
    found = iter(times_s(asked))
    return [
        PointEstimate(
            step_time_s=float(next(found)) if reason is None else None, unknown_because=reason
        )
        for reason in why
    ]


def _gang_terms(
    configurations: Sequence[Configuration], knots: Sequence[int]
) -> tuple[NDArray[np.float64], list[int]]:
    import numpy as np

    n = column(configurations, "world_size")
    b = column(configurations, "global_batch_size") / n
    gang = np.where([c.is_one_machine for c in configurations], 0.0, 1.0)
    share, others, rounds = (n - 1) / n, n - 1, np.log2(n)
    bends = [np.maximum(n - knot, 0.0) for knot in knots]
    delay, jitter, loss = (
        gang * column(configurations, name)
        for name in ("one_way_delay_s", "jitter_s", "packet_loss_ratio")
    )
    per_byte = gang / column(configurations, "bandwidth_bytes_per_s")
    exchange = [gang, gang * share, others, rounds]
    waiting = [delay * rounds]
    for condition in (delay, per_byte, jitter, loss, loss * delay):
        waiting += [condition, condition * share, condition * others]
    bent = [gang * b, b * rounds, *(factor * bend for factor in (gang, b) for bend in bends)]
    kinds = [_EXCHANGE] * len(exchange) + [_WAITING] * len(waiting) + [_BEND] * len(bent)
    return np.stack([*exchange, *waiting, *bent], axis=1), kinds


def _paths(configuration: Configuration) -> list[_Path]:
    """Return the groups that a configuration belongs to, from all to the most special one."""
    values = tuple(getattr(configuration, name) for name in _TREE)
    return [values[:depth] for depth in range(len(values) + 1)]


def _groups(configurations: Sequence[Configuration]) -> dict[_Path, list[int]]:
    """Return the rows of each group, parents first."""
    groups: dict[_Path, list[int]] = {}
    for row, configuration in enumerate(configurations):
        for path in _paths(configuration):
            groups.setdefault(path, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: len(item[0])))


def _scales(
    terms: NDArray[np.float64],
    weights: NDArray[np.float64],
    target: NDArray[np.float64],
    pull: NDArray[np.float64],
    children: Sequence[_Path],
) -> NDArray[np.float64]:
    """Return by what each row's terms are multiplied, one number for all rows of a child.

    What is special differs in scale first: the backward pass takes some multiple of the forward
    one everywhere. Then what is common is the shape, and one child's outlier may be a law of all.
    """
    import numpy as np

    scales = np.ones(len(terms))
    groups = [np.array([c == child for c in children]) for child in dict.fromkeys(children)]
    if len(groups) < 2:
        return scales
    for _ in range(_SCALING_ROUNDS):
        fitted = (terms * scales[:, None]) @ _solve(terms * scales[:, None], weights, target, pull)
        for rows in groups:
            scales[rows] /= _median(fitted[rows], weights[rows])
        scales /= np.exp(np.average(np.log(scales), weights=weights))
    return scales


def _median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the weighted median of times relative to measured ones, not too close to 0."""
    import numpy as np

    order = np.argsort(values, kind="stable")
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return max(float(values[order][half]), _LEAST_RATIO)


def _robust(
    terms: NDArray[np.float64],
    weights: NDArray[np.float64],
    target: NDArray[np.float64],
    pull: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise sum w_i rho(1 - terms_i c) + sum (pull_j (c_j - target_j))^2 over c >= 0.

    `terms` are divided by the measured times, so 1 is a perfect fit. Terms that no row has keep the
    target.
    """
    import numpy as np

    trust = weights
    for _ in range(_ROUNDS):
        found = _solve(terms, trust, target, pull)
        ratio = np.maximum(terms @ found, _LEAST_RATIO)
        error = np.abs(np.log(ratio))
        spread = max(1.4826 * float(np.median(error)), _LEAST_SPREAD)
        outlying = _TUNING * spread / np.maximum(error, _TUNING * spread)
        # Relative errors are bounded below and not above; this makes both sides weigh the same.
        trust = weights * outlying / np.maximum(ratio, 1 / 3)
    return found


def _solve(
    terms: NDArray[np.float64],
    weights: NDArray[np.float64],
    target: NDArray[np.float64],
    pull: NDArray[np.float64],
) -> NDArray[np.float64]:
    import numpy as np
    from scipy.optimize import nnls

    coefficients = target.copy()
    used = np.any(terms > 0, axis=0)
    root = np.sqrt(weights)
    system = np.vstack([terms[:, used] * root[:, None], np.diag(pull[used])])
    coefficients[used], _ = nnls(system, np.concatenate([root, (pull * target)[used]]))
    return coefficients
