"""How wide intervals must be for each kind of question: held out once, then looked up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.calibrated.conformal import Conformal, Errors
from farm.recommend.calibrated.held_out import HeldOut, hold_out, joined
from farm.recommend.calibrated.neighbourhood import Neighbourhood
from farm.recommend.calibrated.novelty import NUMBERS, Axis, Gap, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import named, plain
from farm.recommend.predictors.contracts import FittedPredictor, Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# More make an answer slow and hardly better.
_MOST_ERRORS = 300
# Half-widths in ln(time) where not one measurement could be held out: a factor of 2 and of 3.
NO_EVIDENCE = (math.log(2), math.log(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Held-out errors of n observations, by the kind of question.

    `places`: (n, dimensions). `cells`: (n,), the number of each one's configuration, which
    `cell_of` has too.
    """

    observations: tuple[Observation, ...]
    space: Space
    neighbourhood: Neighbourhood
    places: Array
    cells: NDArray[np.int64]
    cell_of: dict[Configuration, int]
    held_out: HeldOut
    conformals: dict[Gap | None, Conformal]  # from `held_out`, as soon as they are asked for

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

        `places`: where the neighbourhood locates them.
        What lacks on several axes was not held out together, which would take too many fits: each
        axis counts as a doubt of its own, and their squares add up.
        """
        import numpy as np

        scales = np.array(log_scales, dtype=float)
        squares = np.zeros((len(configurations), len(NO_EVIDENCE)))
        alone: list[Gap | None] = [None]
        for gap in sorted(gaps, key=repr) or alone:
            conformal = self.conformal(gap)
            if conformal is None:
                away = np.array([self._distance(gap, c) for c in configurations])
                widths = np.array(NO_EVIDENCE)[None, :] + away[:, None]
            elif is_constant:
                widths = np.array(conformal.constants)[None, :]
            else:
                widths = conformal.half_widths(places, scales) * self._stretch(gap, configurations)
            squares += widths**2
        result: Array = np.sqrt(squares)
        return result

    def own_half_widths(self, configuration: Configuration) -> Sequence[float]:
        """Return what those of a measured configuration would be, had it been held out."""
        import numpy as np

        conformal, asked = self.conformal(None), plain(configuration)
        is_own = self.cells[self.held_out.rows] == self.cell_of[asked]
        own = np.flatnonzero(is_own & self.held_out.is_cell)
        if conformal is None or not len(own):
            return NO_EVIDENCE
        scales = np.array([float(np.mean(self.held_out.log_scales[own]))])
        widths = conformal.half_widths(self.neighbourhood.locate([asked]), scales)[0]
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
        if len(chosen) > _MOST_ERRORS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MOST_ERRORS).round().astype(int)]
        rows = self.held_out.rows[chosen]
        cells = self.cells[rows]
        self.conformals[gap] = Conformal.of(
            Errors(
                places=self.places[rows],
                cells=cells,
                sizes=np.abs(self.held_out.log_errors[chosen]),
                scales=self.held_out.log_scales[chosen],
                weights=1 / np.bincount(self.cells)[cells],
            )
        )
        return self.conformals[gap]

    def _stretch(self, gap: Gap | None, configurations: Sequence[Configuration]) -> Array:
        """Return how many times wider intervals are for lying far beyond what was measured: (k, 1).

        What could be held out lay a step or so beyond. If the doubts of all steps are alike and
        independent, their variances add up.
        """
        import numpy as np

        if gap is None or gap.axis not in NUMBERS:
            return np.ones((len(configurations), 1))
        steps = [self.neighbourhood.steps_beyond(plain(c), gap.axis) for c in configurations]
        stretch: Array = np.sqrt(np.maximum(steps, 1.0))[:, None]
        return stretch

    def _distance(self, gap: Gap | None, configuration: Configuration) -> float:
        """Return |ln| of the ratio to the nearest measured batch or world size.

        Where nothing says how the time goes with it, it may be anything between not at all and in
        proportion.
        """
        if gap is None or gap.axis not in (Axis.BATCH, Axis.WORLD_SIZE, Axis.ALONE):
            return 0.0
        axis = Axis.WORLD_SIZE if gap.axis is Axis.ALONE else gap.axis
        value = self.space.value(plain(configuration), axis)
        known = {self.space.value(c, axis) for c in self.space.configurations}
        assert value is not None
        return min((abs(math.log(value / v)) for v in known if v), default=0.0)


def calibrate(
    observations: Sequence[Observation],
    predictor: Predictor,
    *,
    fitted: FittedPredictor,
    asked: Iterable[Configuration] | None,
) -> Calibration:
    """Hold out as the questions `asked` need it, or else as any question might.

    `fitted`: the predictor fitted to all observations.
    """
    import numpy as np

    space = Space.of(o.configuration for o in observations)
    neighbourhood = Neighbourhood.of(space)
    held_out = hold_out(observations, predictor, [None], fitted=fitted)
    axes = varied(space)
    if asked is not None:
        gaps = {gap for configuration in asked for gap in space.gaps(configuration)}
        axes = [
            axis for axis in axes if any(g.axis is axis and not held_out.tells(g) for g in gaps)
        ]
    held_out = joined(held_out, hold_out(observations, predictor, axes, fitted=fitted))
    configurations = [plain(o.configuration) for o in observations]
    cell_of = {c: number for number, c in enumerate(dict.fromkeys(configurations))}
    calibration = Calibration(
        observations=tuple(observations),
        space=space,
        neighbourhood=neighbourhood,
        places=neighbourhood.locate(configurations),
        cells=np.array([cell_of[c] for c in configurations], dtype=np.int64),
        cell_of=cell_of,
        held_out=held_out,
        conformals={},
    )
    for gap in {gap for gaps in held_out.gaps for gap in gaps}:
        calibration.conformal(gap)
    return calibration


def varied(space: Space) -> list[Axis]:
    """Return the axes with several measured values: what varies at all may be asked elsewhere."""
    found: list[Axis] = []
    for axis in NUMBERS:
        values = {v for c in space.configurations if (v := space.value(c, axis)) is not None}
        if len(values) > 1:
            found.append(axis)
    if len({named(c) for c in space.configurations if not c.is_one_machine}) > 1:
        found.append(Axis.NAMES)
    return found
