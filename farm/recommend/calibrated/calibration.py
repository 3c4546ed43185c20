"""Calibrates the width of prediction intervals for each kind of question, by held-out measurements.

A curve is the measurements with the same strategy, framework, network, set-up and instance type. An
experiment is one left-out value, or one other curve. The half-width, in ln(time):

- d doublings beyond its own curve: each error is divided by its own distance plus 0.5, and the
  half-width multiplied by d + 0.5.
- Beyond all batch sizes or network conditions: also times the ratio of Student's quantile, with two
  degrees of freedom more than there were experiments, to the normal one.
- A world size, a number of servers or a combination of names, where time may jump, or where the own
  curve ends and others go on: times that ratio with as many degrees of freedom as there were
  experiments, at least two (1.8 for two, 1.4 for three, 1.2 for six).
- Beyond all world sizes, or beyond a curve that ends early: added as a square, an assumed error
  with the weight 1 / (1 + n) after n experiments, a factor of 2 for each doubling, and for n = 1 a
  factor of 3 more.
- No measurement could be held out like this: `NO_EVIDENCE`, and 2 more for each doubling after the
  first.
- Several values at once: the root of the sum of the squares of each alone, times a factor of at
  least 1: the quantile of errors that were held out with the same values missing, over that root,
  widened as for two more experiments. Without such an example the half-widths add up; if one of the
  gaps alone has no example either, the squares do.
"""

from __future__ import annotations

import collections
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.calibrated.held_out import Combination, HeldOut, hold_out, joined
from farm.recommend.calibrated.intervals import Conformal, Errors, quantile
from farm.recommend.calibrated.novelty import (
    NUMBERS,
    Gap,
    GapAxis,
    Neighbourhood,
    OwnGap,
    Side,
    Space,
)
from farm.recommend.calibrated.repetitions import experiment_weights
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import AIMS
from farm.recommend.features import canonical, names_of
from farm.recommend.predictors.contracts import FittedPredictor, Predictor
from farm.statistics import student_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# More make an answer slow and hardly better.
_MOST_ERRORS = 300
# Half-widths in ln(time) where not one measurement could be held out: a factor of 2 and of 3.
NO_EVIDENCE = (math.log(2), math.log(3))
# What an error may be for each doubling beyond a curve: between not at all and in proportion.
_PER_DOUBLING = (0.75 * math.log(2), math.log(2))
# With these, time may jump: a link fills up, a second rack begins.
_MAY_JUMP = (GapAxis.WORLD_SIZE, GapAxis.SERVERS)
# Errors grow with the distance, and do not vanish at 0: half of that of a doubling is always there.
_LEAST_DOUBLINGS = 0.5
_MOST_ENDS = 2  # places where curves end that are tried, for each axis and side
# What is left out on several axes at once, where no question says what to leave out.
_MOST_COMBINATIONS, _FOLDS_OF_EACH = 16, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Held-out errors of n observations, by the kind of question.

    `places`: (n, dimensions). `cells`: (n,), the number of each one's configuration, which
    `cell_of` has too. `shares`: (n,), how much each counts, see `repetitions.experiment_weights`.
    `together`: what `factors` found.
    """

    observations: tuple[Observation, ...]
    space: Space
    neighbourhood: Neighbourhood
    places: Array
    cells: NDArray[np.int64]
    shares: NDArray[np.float64]
    cell_of: dict[Configuration, int]
    held_out: HeldOut
    conformals: dict[Gap | None, Conformal]  # from `held_out`, as soon as they are asked for
    experiments: dict[Gap, int]  # how many independent ones each of them rests on
    together: dict[frozenset[Gap], tuple[float, ...] | None]

    def half_widths(
        self,
        gaps: frozenset[Gap],
        configurations: Sequence[Configuration],
        log_scales: Sequence[float],
        *,
        places: Array,
        is_constant: bool = False,
    ) -> Array:
        """Return them in ln(time) for k questions with the same gaps: (k, len(AIMS)).

        `places`: where the neighbourhood locates them. Where nothing that was measured lacked
        several values as the questions do, the half-widths of each alone are added up, as if all
        were off in the same way. Where even one alone has no example, it is assumed to be wide
        enough, and their squares add up.
        """
        import numpy as np

        scales = np.array(log_scales, dtype=float)
        alone = np.array(
            [
                self._alone(
                    gap,
                    self._doublings(gap, configurations),
                    scales,
                    places=places,
                    is_constant=is_constant,
                )
                for gap in (sorted(gaps, key=repr) if gaps else [None])
            ]
        )
        result: Array
        if len(gaps) < 2:
            result = alone[0]
            return result
        factors = self.factors(gaps)
        if factors is not None:
            result = np.sqrt(np.sum(alone**2, axis=0)) * np.array(factors)
        elif any(self.conformal(gap) is None for gap in gaps):
            result = np.sqrt(np.sum(alone**2, axis=0))
        else:
            result = np.sum(alone, axis=0)
        return result

    def factors(self, gaps: frozenset[Gap]) -> tuple[float, ...] | None:
        """Return, for each of `AIMS`, the factor that several gaps at once require.

        The errors of measurements that were left out like this, over the root of the squares of
        the half-widths that each gap alone would have given them: of these the quantile. It is
        1 at least, since few experiments may agree by chance. None: nothing was left out like this.
        """
        import numpy as np

        if gaps in self.together:
            return self.together[gaps]
        chosen = self.held_out.together(gaps)
        self.together[gaps] = None
        if not len(chosen):
            return None
        if len(chosen) > _MOST_ERRORS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MOST_ERRORS).round().astype(int)]
        rows, scales = self.held_out.rows[chosen], self.held_out.log_scales[chosen]
        squares = np.zeros((len(chosen), len(AIMS)))
        lacking = [self.held_out.gaps[i] for i in chosen]
        for own in dict.fromkeys(lacking):
            of = np.array([other == own for other in lacking])
            for gap in own:
                away = np.zeros((len(chosen), 1))
                if gap.axis in NUMBERS:
                    away = self.held_out.doublings[chosen, NUMBERS.index(gap.axis)][:, None]
                widths = self._alone(gap, away[of], scales[of], places=self.places[rows[of]])
                squares[of] += widths**2
        sizes = np.abs(self.held_out.log_errors[chosen])
        weights = self.shares[rows]
        count = min(self.held_out.experiments(gap, chosen) for gap in gaps)
        ratios = [
            quantile(sizes / np.sqrt(squares[:, i]), weights, aim) for i, aim in enumerate(AIMS)
        ]
        self.together[gaps] = tuple(
            max(1.0, ratio * _stretch(aim, count + 2))
            for ratio, aim in zip(ratios, AIMS, strict=True)
        )
        return self.together[gaps]

    def _alone(
        self,
        gap: Gap | None,
        away: Array,
        scales: Array,
        *,
        places: Array,
        is_constant: bool = False,
    ) -> Array:
        """Return the half-widths of what has that gap alone. `away`: (k, 1), in doublings."""
        import numpy as np

        conformal = self.conformal(gap)
        if conformal is None:
            further: Array = np.maximum(away - 1, 0) * np.array(_PER_DOUBLING)
            return np.array(NO_EVIDENCE) + further
        widths: Array
        if is_constant:
            widths = np.tile(np.array(conformal.constants), (len(scales), 1))
        else:
            widths = conformal.half_widths(places, scales)
        return self._widened(gap, widths, away)

    @staticmethod
    def _may_jump(gap: Gap) -> bool:
        is_own = gap.is_beyond and not gap.is_everywhere
        return is_own or gap.axis in (*_MAY_JUMP, GapAxis.NAMES)

    def _widened(self, gap: Gap | None, widths: Array, away: Array) -> Array:
        """Return half-widths for the distance, and for how few experiments tell them.

        Errors that were held out together may all be off in the same way: the quantile is that of
        Student's distribution with a degree of freedom for each experiment. What none of these
        few has shown may come: an assumed error counts as one more of them. Of batch sizes and the
        network's conditions that nobody has, less is assumed: time goes with them smoothly.
        """
        import numpy as np

        if gap is None:
            return widths
        count = self.experiments[gap]
        result: Array = widths * (_LEAST_DOUBLINGS + away) if gap.is_beyond else widths
        if not self._may_jump(gap):
            # As if two more had been made.
            smooth = np.array([_stretch(aim, count + 2) for aim in AIMS])
            return result * smooth if gap.is_beyond else result
        result = result * np.array([_stretch(aim, max(2, count)) for aim in AIMS])
        if gap.is_beyond:
            prior = away * np.array(_PER_DOUBLING)
            if count == 1 and gap.axis in _MAY_JUMP:
                prior = prior + np.array(NO_EVIDENCE)
            result = np.hypot(result, prior / (1 + count))
        return result

    def own_half_widths(self, configuration: Configuration) -> Sequence[float]:
        """Return what those of a measured configuration would be, had it been held out."""
        import numpy as np

        conformal, target = self.conformal(None), canonical(configuration)
        is_own = self.cells[self.held_out.rows] == self.cell_of[target]
        own = np.flatnonzero(is_own & self.held_out.is_cell)
        if conformal is None or not len(own):
            return NO_EVIDENCE
        scales = np.array([float(np.mean(self.held_out.log_scales[own]))])
        widths = conformal.half_widths(
            self.neighbourhood.locate([target]), scales, without_cell=self.cell_of[target]
        )[0]
        return [float(width) for width in widths]

    def conformal(self, gap: Gap | None) -> Conformal | None:
        """Return what calibrates a single gap, or a new combination of measured values.

        None where nothing could be held out like that.
        """
        import numpy as np

        if gap in self.conformals:
            return self.conformals[gap]
        chosen = self.held_out.alike(gap)
        if not len(chosen):
            return None
        if gap is not None:
            self.experiments[gap] = self.held_out.experiments(gap, chosen)
        if len(chosen) > _MOST_ERRORS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MOST_ERRORS).round().astype(int)]
        rows = self.held_out.rows[chosen]
        cells = self.cells[rows]
        sizes = np.abs(self.held_out.log_errors[chosen])
        if gap is not None and gap.is_beyond:
            away = np.max(self.held_out.doublings[chosen], axis=1)
            sizes = sizes / (_LEAST_DOUBLINGS + away)
        self.conformals[gap] = Conformal.of(
            Errors(
                places=self.places[rows],
                cells=cells,
                sizes=sizes,
                scales=self.held_out.log_scales[chosen],
                weights=self.shares[rows],
            )
        )
        return self.conformals[gap]

    def _doublings(self, gap: Gap | None, configurations: Sequence[Configuration]) -> Array:
        """Return how far beyond its own curve each lies on the axis of the gap: (k, 1)."""
        import numpy as np

        found = np.zeros((len(configurations), 1))
        if gap is None or not gap.is_beyond:
            return found
        for i, c in enumerate(configurations):
            if gap.axis == GapAxis.ALONE:
                sizes = [
                    self.space.value(known, GapAxis.WORLD_SIZE)
                    for known in self.space.configurations
                ]
                found[i] = math.log2(min(size for size in sizes if size is not None))
                continue
            found[i] = sum(one.doublings for one in self.space.beyond(c) if one.axis is gap.axis)
        return found


def calibrate(
    observations: Sequence[Observation],
    predictor: Predictor,
    *,
    fitted: FittedPredictor,
    requested: Iterable[Configuration] | None,
) -> Calibration:
    """Hold out as the questions `requested` need it, or else as any question might.

    `fitted`: the predictor fitted to all observations.
    """
    import numpy as np

    space = Space.of(o.configuration for o in observations)
    neighbourhood = Neighbourhood.of(space)
    held_out = hold_out(observations, predictor, [None], fitted=fitted)
    axes = varied(space)
    requested = list(requested) if requested is not None else None
    if requested is not None:
        gaps = {gap for configuration in requested for gap in space.gaps(configuration)}
        axes = [
            axis for axis in axes if any(g.axis is axis and not held_out.tells(g) for g in gaps)
        ]
    own = _own_gaps(space, requested)
    combined = (
        _requested_combinations(space, requested) if requested is not None else _combinations(space)
    )
    held_out = joined(
        held_out,
        hold_out(observations, predictor, axes, own=own, combined=combined, fitted=fitted),
    )
    configurations = [canonical(o.configuration) for o in observations]
    cell_of = {c: number for number, c in enumerate(dict.fromkeys(configurations))}
    calibration = Calibration(
        observations=tuple(observations),
        space=space,
        neighbourhood=neighbourhood,
        places=neighbourhood.locate(configurations),
        cells=np.array([cell_of[c] for c in configurations], dtype=np.int64),
        shares=np.array(experiment_weights(observations)),
        cell_of=cell_of,
        held_out=held_out,
        conformals={},
        experiments={},
        together={},
    )
    for lacking in set(held_out.gaps):
        for gap in lacking:
            calibration.conformal(gap)
        if len(lacking) > 1:
            calibration.factors(lacking)
    return calibration


def _stretch(aim_ratio: float, degrees: int) -> float:
    """Return how many times wider Student's interval is than the normal one."""
    ratio = (1 + aim_ratio) / 2
    return student_quantile(ratio, degrees) / statistics.NormalDist().inv_cdf(ratio)


def _own_gaps(space: Space, requested: Iterable[Configuration] | None) -> list[OwnGap]:
    """Return where curves end while others go on, the most frequent ends of each axis and side.

    Those that the questions `requested` lie beyond; None: those at which measured curves end.
    """
    ends = collections.Counter(
        space.ends() if requested is None else (end for c in requested for end in space.own_gaps(c))
    )
    kept: dict[tuple[GapAxis, Side], list[OwnGap]] = {}
    for end in sorted(ends, key=lambda end: (-ends[end], repr(end))):
        kept.setdefault((end.axis, end.side), []).append(end)
    return [end for found in kept.values() for end in found[:_MOST_ENDS]]


def _requested_combinations(space: Space, requested: Iterable[Configuration]) -> list[Combination]:
    """Return what questions lack on several axes at once, the most frequent first."""
    found = collections.Counter(
        Combination(gaps, tuple(space.own_gaps(c)))
        for c in requested
        if len(gaps := space.gaps(c)) > 1
    )
    ordered = sorted(found, key=lambda one: (-found[one], repr(sorted(one.gaps, key=repr))))
    first = {one.gaps: one for one in reversed(ordered)}
    return [one for one in ordered if first[one.gaps] is one][:_MOST_COMBINATIONS]


def _combinations(space: Space) -> list[Combination]:
    """Return what any question may lack on several axes at once, two of them first.

    Of world sizes and servers beyond and between those that were measured, since neither tells of
    the other. Curves that end early are combined with each other axis; so are new names.
    """
    axes = varied(space)
    numbers = [axis for axis in axes if axis != GapAxis.NAMES]

    def several(count: int) -> Iterator[Combination]:
        for chosen in itertools.combinations(numbers, count):
            sides = (Side.ABOVE, Side.INSIDE) if set(chosen) & set(_MAY_JUMP) else (Side.ABOVE,)
            for side in sides:
                gaps = frozenset(Gap(axis, side, is_everywhere=True) for axis in chosen)
                yield Combination(gaps, fold_count=_FOLDS_OF_EACH)

    def beside(gap: Gap, *own: OwnGap) -> Iterator[Combination]:
        for axis in numbers:
            if axis != gap.axis:
                other = Gap(axis, Side.ABOVE, is_everywhere=True)
                yield Combination(frozenset({gap, other}), own, _FOLDS_OF_EACH)

    found = [*several(2)]
    for end in {end.axis: end for end in reversed(_own_gaps(space, None))}.values():
        found += beside(Gap(end.axis, end.side, is_everywhere=False), end)
    if GapAxis.NAMES in axes:
        found += beside(Gap(GapAxis.NAMES, Side.INSIDE, is_everywhere=False))
    return [*found, *several(3)][:_MOST_COMBINATIONS]


def varied(space: Space) -> list[GapAxis]:
    """Return the axes with several measured values: what varies at all may be asked elsewhere."""
    found: list[GapAxis] = []
    for axis in NUMBERS:
        values = {v for c in space.configurations if (v := space.value(c, axis)) is not None}
        if len(values) > 1:
            found.append(axis)
    if len({names_of(c) for c in space.configurations if not c.is_one_machine}) > 1:
        found.append(GapAxis.NAMES)
    return found
