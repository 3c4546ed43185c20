"""Hold measurements out as a question would: what lacks in the question lacks in the training.

A question at a batch size that was never measured is harder than one at a new combination of
measured values. So the errors that calibrate its interval are those of measurements whose batch
size, too, was left out of the training altogether.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from farm.recommend.calibrated.novelty import Axis, Gap, Space
from farm.recommend.calibrated.splits import Fold, Group, holding_out, random_folds
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import named, plain
from farm.recommend.predictors.contracts import FittedPredictor, Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# More folds cost time, and their errors tell little more.
_MOST_FOLDS = 6
_LEAST_TRAINING = 3  # configurations
# Fewer errors of exactly the question's kind tell less than more of a similar kind. Of one group
# all may be off in the same way, so two at least have to tell.
_LEAST_ALIKE, _LEAST_GROUPS = 10, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """What was predicted of m measurements that were held out, each column of length m.

    `rows`: positions among the observations; one may occur in several folds. `is_cell`: where
    configurations were held out and no values, which every measurement was once, unless nothing
    could be said. `groups`: the number of what was left out together, such as a batch size.
    `log_errors`: ln(measured / predicted). `log_scales`: the predictor's own doubt. `gaps`: what
    lacked in the training.
    """

    rows: NDArray[np.int64]
    is_cell: NDArray[np.bool_]
    groups: NDArray[np.int64]
    log_errors: NDArray[np.float64]
    log_scales: NDArray[np.float64]
    gaps: tuple[frozenset[Gap], ...]

    def alike(self, gap: Gap | None) -> NDArray[np.int64]:
        """Return which of the m are as hard as a question with that gap alone; None: with none.

        Those that lacked just that; where they are too few, those that lacked it on any side of
        the measured values; then those that lacked the axis somewhere. Possibly none.
        """
        import numpy as np

        chosen: list[int] = []
        for chosen in self._levels(gap):
            if self._is_enough(chosen):
                break
        return np.array(chosen, dtype=np.int64)

    def tells(self, gap: Gap) -> bool:
        """Whether enough of the m lacked just that."""
        return self._is_enough(self._levels(gap)[0])

    def _is_enough(self, chosen: Sequence[int]) -> bool:
        groups = {int(self.groups[i]) for i in chosen}
        return len(chosen) >= _LEAST_ALIKE and len(groups) >= _LEAST_GROUPS

    def _levels(self, gap: Gap | None) -> list[list[int]]:
        if gap is None:
            exact = [i for i, own in enumerate(self.gaps) if not own]
            return [exact, [i for i, is_cell in enumerate(self.is_cell) if is_cell]]
        alone = [i for i, own in enumerate(self.gaps) if len(own) == 1 and gap.axis in _axes(own)]
        return [
            [i for i in alone if gap in self.gaps[i]],
            [i for i in alone if {g.is_everywhere for g in self.gaps[i]} == {gap.is_everywhere}],
            alone,
            [i for i, own in enumerate(self.gaps) if gap.axis in _axes(own)],
        ]


def _axes(gaps: Iterable[Gap]) -> set[Axis]:
    return {gap.axis for gap in gaps}


Refit = Callable[[Sequence[Observation]], FittedPredictor]


@runtime_checkable
class Refitting(Protocol):
    """A fitted predictor that can be fitted to a part of its observations in much less time.

    It may keep what a tenth of them hardly changes, such as the parameters of its kernel, and must
    forget the times of those that are gone.
    """

    def refit(self, observations: Sequence[Observation]) -> FittedPredictor: ...


def refit_of(fitted: FittedPredictor | None, predictor: Predictor) -> Refit:
    """Return the quickest way to fit to a part of what `fitted` was fitted to, if there is one."""
    return fitted.refit if isinstance(fitted, Refitting) else predictor.fit


def hold_out(
    observations: Sequence[Observation],
    predictor: Predictor,
    axes: Iterable[Axis | None],
    *,
    fitted: FittedPredictor | None = None,
) -> HeldOut:
    """Fit once for each fold; return the errors of what was left out and answered.

    `axes`: whose values to hold out, one axis after the other; None: configurations. `fitted`: the
    predictor fitted to all of them, if there is one; see `Refitting`.
    """
    import numpy as np

    refit = refit_of(fitted, predictor)
    configurations = [plain(o.configuration) for o in observations]
    whole = Space.of(configurations)
    number_of: dict[Hashable, int] = {}
    rows: list[tuple[int, bool, int]] = []
    errors: list[tuple[float, float]] = []
    gaps: list[frozenset[Gap]] = []
    seen: dict[frozenset[Gap], frozenset[Gap]] = {}  # a few, kept once: a model is also a file
    for axis in axes:
        group = _group(axis, whole)
        for fold in folds(configurations, axis):
            training = [observations[i] for i in fold.training]
            space = Space.of(configurations[i] for i in fold.training)
            estimates = refit(training).predict([configurations[i] for i in fold.tested])
            for row, estimate in zip(fold.tested, estimates, strict=True):
                if estimate.step_time_s is None:
                    continue
                key = (axis, group(configurations[row]))
                rows.append((row, axis is None, number_of.setdefault(key, len(number_of))))
                error = math.log(observations[row].step_time_s / estimate.step_time_s)
                errors.append((error, estimate.log_scale))
                own = space.gaps(configurations[row])
                gaps.append(seen.setdefault(own, own))
    return HeldOut(
        rows=np.array([row for row, _, _ in rows], dtype=np.int64),
        is_cell=np.array([is_cell for _, is_cell, _ in rows], dtype=np.bool_),
        groups=np.array([number for _, _, number in rows], dtype=np.int64),
        log_errors=np.array([error for error, _ in errors], dtype=np.float64),
        log_scales=np.array([scale for _, scale in errors], dtype=np.float64),
        gaps=tuple(gaps),
    )


def joined(first: HeldOut, second: HeldOut) -> HeldOut:
    """Return both, of the same observations."""
    import numpy as np

    next_group = int(np.max(first.groups, initial=-1)) + 1
    return HeldOut(
        rows=np.concatenate([first.rows, second.rows]),
        is_cell=np.concatenate([first.is_cell, second.is_cell]),
        groups=np.concatenate([first.groups, second.groups + next_group]),
        log_errors=np.concatenate([first.log_errors, second.log_errors]),
        log_scales=np.concatenate([first.log_scales, second.log_scales]),
        gaps=first.gaps + second.gaps,
    )


def folds(configurations: Sequence[Configuration], axis: Axis | None) -> list[Fold]:
    """Return folds that leave out values of an axis, at most about eight, the same every time.

    One value each, for all strategies and networks, and the two largest and the two smallest
    together, which is what a question far beyond them asks. None: random configurations, with
    their repetitions; where a strategy was measured at few values, these leave some of them out
    for it alone. Of names, whole combinations.
    """
    group = _group(axis, Space.of(configurations))
    if axis is None or axis is Axis.NAMES:
        found = random_folds(configurations, group, count=_MOST_FOLDS)
    else:
        found = _one_value_each([group(plain(c)) for c in configurations])
    return [
        fold
        for fold in found
        if fold.tested and len({configurations[i] for i in fold.training}) >= _LEAST_TRAINING
    ]


def _group(axis: Axis | None, space: Space) -> Group:
    if axis is None:
        return lambda c: c
    if axis is Axis.NAMES:
        return lambda c: None if c.is_one_machine else named(c)
    return lambda c: space.value(c, axis)


def _one_value_each(groups: Sequence[Hashable]) -> list[Fold]:
    values = sorted(v for v in set(groups) if isinstance(v, float))
    sets = [[value] for value in _spread(values, _MOST_FOLDS)]
    if len(values) > 3:
        sets += [values[:2], values[-2:]]
    return [holding_out(groups, held_out) for held_out in sets]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """Return at most that many of them, evenly, with the first and the last."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
