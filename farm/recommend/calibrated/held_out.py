"""Hold measurements out as a question would: what lacks in the question lacks in the training.

A question at a batch size that was never measured is harder than one at a new combination of
measured values. So the errors that calibrate its interval are those of measurements whose batch
size, too, was left out of the training altogether.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from farm.recommend.calibrated.novelty import Axis, Gap, Space, names
from farm.recommend.calibrated.splits import Fold, Group, holding_out, random_folds
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.contracts import FittedPredictor, Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# More folds cost time, and their errors tell little more.
_MOST_FOLDS = 8
_LEAST_TRAINING = 3  # configurations
# Fewer errors of exactly the question's kind tell less than more of a similar kind.
_LEAST_ALIKE, _LEAST_GROUPS = 10, 2
# What a fold leaves out: on which axis, and whether for all strategies and networks at once. None:
# nothing but the configurations themselves.
Kind = tuple[Axis, bool] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """What was predicted of m measurements that were held out, each column of length m.

    `rows`: positions among the observations; one may occur in several folds, or in none.
    `groups`: the number of what was left out together, such as a batch size. `log_errors`:
    ln(measured / predicted). `log_scales`: the predictor's own doubt. `gaps`: what lacked in the
    training.
    """

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    log_errors: NDArray[np.float64]
    log_scales: NDArray[np.float64]
    gaps: tuple[frozenset[Gap], ...]

    def alike(self, gap: Gap | None) -> NDArray[np.int64]:
        """Return which of the m lacked just that; too few: the same but for the side; else all.

        Of one group all may be off in the same way, so two at least have to tell.
        """
        import numpy as np

        kinds = [frozenset(kind_of(own) for own in gaps) for gaps in self.gaps]
        kind = frozenset() if gap is None else frozenset({kind_of(gap)})
        exact = frozenset() if gap is None else frozenset({gap})
        for chosen in (
            [i for i, own in enumerate(self.gaps) if own == exact],
            [i for i, own in enumerate(kinds) if own == kind],
        ):
            if len(chosen) >= _LEAST_ALIKE and len(set(self.groups[chosen])) >= _LEAST_GROUPS:
                return np.array(chosen, dtype=np.int64)
        return np.arange(len(self.gaps), dtype=np.int64)


def kind_of(gap: Gap | None) -> Kind:
    """Return what a fold must leave out to be as hard as a question with this gap."""
    return None if gap is None else (gap.axis, gap.is_everywhere)


@runtime_checkable
class Refitting(Protocol):
    """A fitted predictor that can be fitted to a part of its observations in much less time.

    It may keep what a tenth of them hardly changes, such as the parameters of its kernel, and must
    forget the times of those that are gone.
    """

    def refit(self, observations: Sequence[Observation]) -> FittedPredictor: ...


def hold_out(
    observations: Sequence[Observation],
    predictor: Predictor,
    kind: Kind,
    *,
    fitted: FittedPredictor | None = None,
) -> HeldOut:
    """Fit once for each fold of that kind; return the errors of what was left out and answered.

    `fitted`: the predictor fitted to all of them, if there is one; see `Refitting`.
    """
    import numpy as np

    configurations = [plain(o.configuration) for o in observations]
    group = _group(kind, Space.of(configurations))
    number_of: dict[Hashable, int] = {}
    groups = [number_of.setdefault(group(c), len(number_of)) for c in configurations]
    rows: list[int] = []
    log_errors: list[float] = []
    log_scales: list[float] = []
    gaps: list[frozenset[Gap]] = []
    seen: dict[frozenset[Gap], frozenset[Gap]] = {}  # a few, kept once: a model is also a file
    for fold in folds(observations, kind):
        training = [observations[i] for i in fold.training]
        space = Space.of(o.configuration for o in training)
        asked = [observations[i].configuration for i in fold.tested]
        refit = fitted.refit if isinstance(fitted, Refitting) else predictor.fit
        estimates = refit(training).predict(asked)
        for row, configuration, estimate in zip(fold.tested, asked, estimates, strict=True):
            if estimate.step_time_s is not None:
                rows.append(row)
                log_errors.append(math.log(observations[row].step_time_s / estimate.step_time_s))
                log_scales.append(estimate.log_scale)
                own = space.gaps(configuration)
                gaps.append(seen.setdefault(own, own))
    return HeldOut(
        rows=np.array(rows, dtype=np.int64),
        groups=np.array([groups[row] for row in rows], dtype=np.int64),
        log_errors=np.array(log_errors, dtype=np.float64),
        log_scales=np.array(log_scales, dtype=np.float64),
        gaps=tuple(gaps),
    )


def folds(observations: Sequence[Observation], kind: Kind) -> list[Fold]:
    """Return folds that leave out what the kind says, at most about eight, the same every time.

    Repetitions of a configuration stay together. Without any axis they are random; with one axis
    for all strategies, one value each, and the largest and the smallest few values together, which
    is what a question beyond them asks.
    """
    configurations = [plain(o.configuration) for o in observations]
    group = _group(kind, Space.of(configurations))
    if kind is not None and kind[1]:
        found = _one_value_each([group(c) for c in configurations])
    else:
        found = random_folds(configurations, group, count=_MOST_FOLDS)
    return [
        fold
        for fold in found
        if fold.tested and len({configurations[i] for i in fold.training}) >= _LEAST_TRAINING
    ]


def _group(kind: Kind, space: Space) -> Group:
    if kind is None:
        return lambda c: c
    axis, is_everywhere = kind
    if axis is Axis.NAMES:
        return lambda c: None if c.is_one_machine else names(c)

    def group(configuration: Configuration) -> Hashable:
        value = space.value(configuration, axis)
        return value if value is None or is_everywhere else (*names(configuration), value)

    return group


def _one_value_each(groups: Sequence[Hashable]) -> list[Fold]:
    values = sorted(v for v in set(groups) if isinstance(v, float))
    sets = [[value] for value in _spread(values, _MOST_FOLDS)]
    for count in (2, 3):
        if len(values) > count + 1:
            sets += [values[:count], values[-count:]]
    return [holding_out(groups, held_out) for held_out in sets]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """Return at most that many of them, evenly, with the first and the last."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
