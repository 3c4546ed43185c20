"""Holds out measurements so that predicting them is as hard as answering a question.

A question at a batch size that was never measured is harder than one at a new combination of
measured values. So its interval is calibrated by errors of measurements whose batch size was left
out of the training altogether.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from farm.recommend.calibrated.novelty import NUMBERS, Gap, GapAxis, OwnGap, Side, Space
from farm.recommend.calibrated.repetitions import value_of
from farm.recommend.calibrated.splits import Fold, GroupOf, holding_out, random_folds
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import canonical, names_of
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
# With more machines a law may begin that nothing in between shows.
_STRICT = (GapAxis.WORLD_SIZE, GapAxis.SERVERS, GapAxis.ALONE)
_OWN_FOLDS = 3  # for each place where curves end


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The predictions of m held-out measurements; each column has length m.

    `rows`: positions among the observations; one may occur in several folds. `is_cell`: where
    configurations were held out and no values, which every measurement was once, unless nothing
    could be said. `values`: the same number for rows that print one value, whatever their names.
    `groups`: the number of what was left out together, such as a batch size. `curves`: the number
    of each one's names, the same for curves that are copies. `log_errors`:
    ln(measured / predicted). `log_scales`: the predictor's own doubt. `gaps`: what lacked in the
    training. `doublings`: (m, len(NUMBERS)), how far beyond the training's curve it lay on each
    axis, see `novelty.Beyond`; 0: not beyond.
    """

    rows: NDArray[np.int64]
    is_cell: NDArray[np.bool_]
    values: NDArray[np.int64]
    groups: NDArray[np.int64]
    curves: NDArray[np.int64]
    log_errors: NDArray[np.float64]
    log_scales: NDArray[np.float64]
    gaps: tuple[frozenset[Gap], ...]
    doublings: NDArray[np.float64]

    def alike(self, gap: Gap | None) -> NDArray[np.int64]:
        """Return which of the m are at least as hard as a question with that gap alone.

        None: with no gap. Those that lacked just that; where they are too few, others of the kind
        that are harder. Of world sizes and servers, and of what a single curve lacks, nothing
        between measured values tells of what lies beyond them, nor does one side of the other.
        Possibly none.
        """
        import numpy as np

        chosen: list[int] = []
        for chosen in self._levels(gap):
            if self._is_enough(chosen):
                break
        return np.array(chosen, dtype=np.int64)

    def experiments(self, gap: Gap, chosen: NDArray[np.int64]) -> int:
        """Return how many of the chosen errors are independent of each other.

        Of one curve that goes on further than its own measurements other curves tell, each once;
        of a value that nobody has, each time that values were left out.
        """
        numbers = self.groups if gap.is_everywhere or not gap.is_beyond else self.curves
        return len({int(number) for number in numbers[chosen]})

    def tells(self, gap: Gap) -> bool:
        """Whether enough held-out measurements have exactly this gap."""
        return self._is_enough(self._levels(gap)[0])

    def together(self, gaps: frozenset[Gap]) -> NDArray[np.int64]:
        """Return the held-out measurements that have gaps on exactly these axes at once.

        Those with the same gaps; where they are too few, also those with others on these axes, as
        far as these tell of them: see `alike`. Possibly none.
        """
        import numpy as np

        same = [i for i, own in enumerate(self.gaps) if own == gaps]
        if not self._is_enough(same):
            same = [i for i, own in enumerate(self.gaps) if _tells_of(own, gaps)]
        return np.array(same, dtype=np.int64)

    def _is_enough(self, chosen: Sequence[int]) -> bool:
        values = {int(self.values[i]) for i in chosen}
        groups = {int(self.groups[i]) for i in chosen}
        return len(values) >= _LEAST_ALIKE and len(groups) >= _LEAST_GROUPS

    def _levels(self, gap: Gap | None) -> list[list[int]]:
        if gap is None:
            exact = [i for i, own in enumerate(self.gaps) if not own]
            return [exact, [i for i, is_cell in enumerate(self.is_cell) if is_cell]]
        alone = [i for i, own in enumerate(self.gaps) if len(own) == 1 and gap.axis in _axes(own)]
        exact = [i for i in alone if gap in self.gaps[i]]
        if gap.is_beyond and (gap.axis in _STRICT or not gap.is_everywhere):
            harder = dataclasses.replace(gap, is_everywhere=True)
            return [exact, [i for i in alone if self.gaps[i] & {gap, harder}]]
        return [
            exact,
            [i for i in alone if {g.is_everywhere for g in self.gaps[i]} == {gap.is_everywhere}],
            alone,
            [i for i, own in enumerate(self.gaps) if gap.axis in _axes(own)],
        ]


def _axes(gaps: Iterable[Gap]) -> set[GapAxis]:
    return {gap.axis for gap in gaps}


def _tells_of(known: frozenset[Gap], requested: frozenset[Gap]) -> bool:
    """Whether what lacked `known` is at least about as hard as what lacks `requested`."""
    if _axes(known) != _axes(requested):
        return False
    of_axis = {gap.axis: gap for gap in known}
    for gap in requested:
        other = of_axis[gap.axis]
        if other == gap or gap.axis == GapAxis.NAMES:
            continue
        is_strict = gap.axis in _STRICT or (gap.is_beyond and not gap.is_everywhere)
        if is_strict and other.side is not gap.side:
            return False
        if gap.is_everywhere and not other.is_everywhere:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Combination:
    """Gaps on several axes at once; `own`: those of them that others do not have."""

    gaps: frozenset[Gap]
    own: tuple[OwnGap, ...] = ()
    fold_count: int = 4


Refit = Callable[[Sequence[Observation]], FittedPredictor]


@runtime_checkable
class Refittable(Protocol):
    """A fitted predictor that can be fitted to a part of its observations in much less time.

    It may keep what a tenth of them hardly changes, such as the parameters of its kernel, and must
    forget the times of those that are gone.
    """

    def refit(self, observations: Sequence[Observation]) -> FittedPredictor: ...


def refit_of(fitted: FittedPredictor | None, predictor: Predictor) -> Refit:
    """Return the quickest way to fit to a part of what `fitted` was fitted to, if there is one."""
    return fitted.refit if isinstance(fitted, Refittable) else predictor.fit


def hold_out(
    observations: Sequence[Observation],
    predictor: Predictor,
    axes: Iterable[GapAxis | None],
    *,
    own: Iterable[OwnGap] = (),
    combined: Iterable[Combination] = (),
    fitted: FittedPredictor | None = None,
) -> HeldOut:
    """Fit once for each fold; return the errors of the held-out predictions.

    `axes`: whose values to hold out, one axis after the other; None: configurations. `own`: what
    some curves lack and others have, so that it is left out of some of those others. `combined`:
    what to leave out at once. `fitted`: the predictor fitted to all of them, if there is one; see
    `Refittable`.
    """
    import numpy as np

    refit = refit_of(fitted, predictor)
    configurations = [canonical(o.configuration) for o in observations]
    number_of: dict[Hashable, int] = {}
    values = [value_of(observation) for observation in observations]
    value_numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    curve_of = _curve_numbers(configurations, values)
    rows: list[tuple[int, bool, int, int, int]] = []
    errors: list[tuple[float, float]] = []
    doublings: list[list[float]] = []
    gaps: list[frozenset[Gap]] = []
    seen: dict[frozenset[Gap], frozenset[Gap]] = {}  # a few, kept once: a model is also a file
    planned: list[tuple[GapAxis | Combination | None, Fold]] = []
    planned += [(axis, fold) for axis in axes for fold in folds(configurations, axis)]
    planned += [(gap.axis, fold) for gap in own for fold in own_folds(configurations, gap)]
    planned += [(one, fold) for one in combined for fold in combined_folds(configurations, one)]
    for number, (axis, planned_fold) in enumerate(planned):
        fold = _without_copies(planned_fold, values)
        if not _is_useful(fold, configurations):
            continue
        training = [observations[i] for i in fold.training]
        space = Space.of(configurations[i] for i in fold.training)
        estimates = refit(training).predict([configurations[i] for i in fold.tested])
        for row, estimate in zip(fold.tested, estimates, strict=True):
            if estimate.step_time_s is None:
                continue
            # Configurations are off each in its own way; values, as often as they are left out.
            key: Hashable = configurations[row] if axis is None else number
            if axis == GapAxis.NAMES:
                key = names_of(configurations[row])
            group = number_of.setdefault(key, len(number_of))
            curve, value = curve_of[names_of(configurations[row])], value_numbers[values[row]]
            rows.append((row, axis is None, value, group, curve))
            error = math.log(observations[row].step_time_s / estimate.step_time_s)
            errors.append((error, estimate.log_scale))
            beyond = {one.axis: one.doublings for one in space.beyond(configurations[row])}
            doublings.append([beyond.get(number_axis, 0.0) for number_axis in NUMBERS])
            lacking = space.gaps(configurations[row])
            gaps.append(seen.setdefault(lacking, lacking))
    columns = list(zip(*rows, strict=True)) or [()] * 5
    numbers = list(zip(*errors, strict=True)) or [()] * 2
    return HeldOut(
        rows=np.array(columns[0], dtype=np.int64),
        is_cell=np.array(columns[1], dtype=np.bool_),
        values=np.array(columns[2], dtype=np.int64),
        groups=np.array(columns[3], dtype=np.int64),
        curves=np.array(columns[4], dtype=np.int64),
        log_errors=np.array(numbers[0], dtype=np.float64),
        log_scales=np.array(numbers[1], dtype=np.float64),
        gaps=tuple(gaps),
        doublings=np.array(doublings, dtype=np.float64).reshape(len(rows), len(NUMBERS)),
    )


def _curve_numbers(
    configurations: Sequence[Configuration], values: Sequence[Hashable]
) -> dict[tuple[object, ...], int]:
    """Return a number for the names of each curve; curves with the same values have the same."""
    curves: dict[tuple[object, ...], set[Hashable]] = {}
    for c, value in zip(configurations, values, strict=True):
        curves.setdefault(names_of(c), set()).add(value)
    numbers: dict[Hashable, int] = {}
    return {
        curve: numbers.setdefault(frozenset(own), len(numbers)) for curve, own in curves.items()
    }


def _without_copies(fold: Fold, values: Sequence[Hashable]) -> Fold:
    """Return the fold without training on copies of what is tested, which would tell its answer.

    Benchmark tables print one value under each network or framework that it holds for.
    """
    tested = {values[i] for i in fold.tested}
    return Fold(tuple(i for i in fold.training if values[i] not in tested), fold.tested)


def joined(first: HeldOut, second: HeldOut) -> HeldOut:
    """Return both, of the same observations."""
    import numpy as np

    next_group = int(np.max(first.groups, initial=-1)) + 1
    return HeldOut(
        rows=np.concatenate([first.rows, second.rows]),
        is_cell=np.concatenate([first.is_cell, second.is_cell]),
        values=np.concatenate([first.values, second.values]),
        groups=np.concatenate([first.groups, second.groups + next_group]),
        curves=np.concatenate([first.curves, second.curves]),
        log_errors=np.concatenate([first.log_errors, second.log_errors]),
        log_scales=np.concatenate([first.log_scales, second.log_scales]),
        gaps=first.gaps + second.gaps,
        doublings=np.concatenate([first.doublings, second.doublings]),
    )


def folds(configurations: Sequence[Configuration], axis: GapAxis | None) -> list[Fold]:
    """Return folds that leave out values of an axis, at most about ten, the same every time.

    One value each, for all strategies and networks, and all but the two smallest, all but the two
    largest and so on, which is what a question far beyond them asks. None: random configurations,
    with their repetitions; where a strategy was measured at few values, these leave some of them
    out for it alone. Of names, whole combinations.
    """
    group = _group(axis, Space.of(configurations))
    if axis is None or axis == GapAxis.NAMES:
        found = random_folds(configurations, group, count=_MOST_FOLDS)
    else:
        found = _values_out([group(canonical(c)) for c in configurations])
    return [fold for fold in found if _is_useful(fold, configurations)]


def own_folds(configurations: Sequence[Configuration], gap: OwnGap) -> list[Fold]:
    """Return folds that cut curves at the gap's edge, another part of the curves in each fold.

    The others stay as they are: somebody has been there.
    """
    space = Space.of(configurations)
    going_on = _going_on(space, gap)
    found = []
    for start in range(min(_OWN_FOLDS, len(going_on))):
        ended = set(going_on[start::_OWN_FOLDS])
        out = [
            not c.is_one_machine
            and names_of(c) in ended
            and gap.is_beyond(space.value(c, gap.axis))
            for c in map(canonical, configurations)
        ]
        found.append(holding_out(out, [True]))
    return [fold for fold in found if _is_useful(fold, configurations)]


def _going_on(space: Space, gap: OwnGap) -> list[Hashable]:
    """Return the names of the gangs' curves that were measured at the edge and beyond it."""
    curves: dict[Hashable, set[bool]] = {}
    for c in space.configurations:
        value = space.value(c, gap.axis)
        if not c.is_one_machine and value is not None:
            curves.setdefault(names_of(c), set()).add(gap.is_beyond(value))
    return sorted((curve for curve, sides in curves.items() if len(sides) > 1), key=repr)


def combined_folds(configurations: Sequence[Configuration], combination: Combination) -> list[Fold]:
    """Return folds that leave out something on each axis, and test what lacks all of it at once.

    What lacks a part of it is in neither. Of an own gap some of the curves that go on are ended;
    of names some combinations are left out; of other axes some values, on the side of the gap
    where there are several.
    """
    ours = [canonical(c) for c in configurations]
    space = Space.of(ours)
    lacking = sorted(combination.gaps, key=repr)
    own = {end.axis: end for end in combination.own}
    curves = sorted({names_of(c) for c in ours if not c.is_one_machine}, key=repr)
    for end in own.values():
        going_on = set(_going_on(space, end))
        curves = [curve for curve in curves if curve in going_on]

    def is_out(c: Configuration, gap: Gap, ended: set[Hashable], values: set[float]) -> bool:
        value = None if gap.axis == GapAxis.NAMES else space.value(c, gap.axis)
        if gap.axis == GapAxis.NAMES or gap.axis in own:
            is_ended = not c.is_one_machine and names_of(c) in ended
            return is_ended and (gap.axis not in own or own[gap.axis].is_beyond(value))
        return value in values and not (gap.axis in _STRICT and c.is_one_machine)

    found = []
    for number in range(combination.fold_count):
        ended: set[Hashable] = set(curves[number :: combination.fold_count])
        values = [
            set()
            if gap.axis == GapAxis.NAMES
            else _left_out(space, gap, number + place * (number // 2))
            for place, gap in enumerate(lacking)
        ]
        out = [
            [is_out(c, gap, ended, left) for gap, left in zip(lacking, values, strict=True)]
            for c in ours
        ]
        found.append(
            Fold(
                training=tuple(i for i, lacks in enumerate(out) if not any(lacks)),
                tested=tuple(i for i, lacks in enumerate(out) if all(lacks)),
            )
        )
    return [fold for fold in dict.fromkeys(found) if _is_useful(fold, ours)]


def _left_out(space: Space, gap: Gap, number: int) -> set[float]:
    """Return values of gangs to leave out, on the side of the gap; `number`: which of several."""
    gangs = [c for c in space.configurations if not c.is_one_machine]
    values = sorted({v for c in gangs if (v := space.value(c, gap.axis)) is not None})
    if len(values) < 2:
        return set()
    ends = {Side.ABOVE: values[::-1], Side.BELOW: values}
    if gap.side in ends:
        most = 2 if len(values) > 3 and number % 2 else 1
        return set(ends[gap.side][:most])
    inner = values[1:-1] or values
    return {inner[number % len(inner)]}


def _is_useful(fold: Fold, configurations: Sequence[Configuration]) -> bool:
    trained = {configurations[i] for i in fold.training}
    return bool(fold.tested) and len(trained) >= _LEAST_TRAINING


def _group(axis: GapAxis | None, space: Space) -> GroupOf:
    if axis is None:
        return lambda c: c
    if axis == GapAxis.NAMES:
        return lambda c: None if c.is_one_machine else names_of(c)
    return lambda c: space.value(c, axis)


def _values_out(groups: Sequence[Hashable]) -> list[Fold]:
    values = sorted(v for v in set(groups) if isinstance(v, float))
    sets = [[value] for value in _spread(values, _MOST_FOLDS)]
    for count in dict.fromkeys((2, len(values) - 2)):
        if 1 < count < len(values) - 1:
            sets += [values[:count], values[-count:]]
    return [holding_out(groups, held_out) for held_out in sets]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """Return at most that many of them, evenly, with the first and the last."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
