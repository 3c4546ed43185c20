"""How wide intervals must be for each kind of question: held out once, then looked up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.calibrated.conformal import Conformal, Errors
from farm.recommend.calibrated.held_out import HeldOut, Kind, hold_out, kind_of
from farm.recommend.calibrated.neighbourhood import Neighbourhood
from farm.recommend.calibrated.novelty import NUMBERS, Axis, Gap, Space, names
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.contracts import FittedPredictor, Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    places: NDArray[np.float64]
    cells: NDArray[np.int64]
    cell_of: dict[Configuration, int]
    tables: dict[Kind, HeldOut]
    conformals: dict[Gap | None, Conformal]  # filled where asked, from `tables`

    def half_widths(
        self,
        gaps: frozenset[Gap],
        configurations: Sequence[Configuration],
        log_scales: Sequence[float],
        *,
        is_constant: bool = False,
    ) -> NDArray[np.float64]:
        """Return them in ln(time) for k questions with the same gaps: (k, len(AIMS)).

        What lacks on several axes was not held out together, which would take too many fits: each
        axis counts as a doubt of its own, and their squares add up.
        """
        import numpy as np

        at = self.neighbourhood.locate(configurations)
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
                widths = conformal.half_widths(at, scales)
            squares += widths**2
        result: NDArray[np.float64] = np.sqrt(squares)
        return result

    def own_half_widths(self, configuration: Configuration) -> Sequence[float]:
        """Return what those of a measured configuration would be, had it been held out."""
        import numpy as np

        conformal, table = self.conformal(None), self.tables.get(None)
        asked = plain(configuration)
        if conformal is None or table is None:
            return NO_EVIDENCE
        own = np.flatnonzero(self.cells[table.rows] == self.cell_of[asked])
        if not len(own):
            return NO_EVIDENCE
        scales = np.array([float(np.mean(table.log_scales[own]))])
        widths = conformal.half_widths(self.neighbourhood.locate([asked]), scales)[0]
        return [float(width) for width in widths]

    def conformal(self, gap: Gap | None) -> Conformal | None:
        """Return what calibrates a single gap, or a new combination of measured values.

        None where nothing could be held out like that.
        """
        if gap not in self.conformals:
            table = self._table(kind_of(gap))
            if table is None:
                return None
            chosen = table.alike(gap)[:_MOST_ERRORS]
            self.conformals[gap] = self._of_errors(table, chosen)
        return self.conformals[gap]

    def _table(self, kind: Kind) -> HeldOut | None:
        """Return the errors of that kind, or else of the same axis for all strategies or one."""
        other = None if kind is None else (kind[0], not kind[1])
        for candidate in (kind, other):
            table = self.tables.get(candidate)
            if table is not None and len(table.rows):
                return table
        return None

    def _of_errors(self, table: HeldOut, chosen: NDArray[np.int64]) -> Conformal:
        import numpy as np

        rows = table.rows[chosen]
        cells = self.cells[rows]
        return Conformal.of(
            Errors(
                places=self.places[rows],
                cells=cells,
                groups=table.groups[chosen],
                sizes=np.abs(table.log_errors[chosen]),
                scales=table.log_scales[chosen],
                weights=1 / np.bincount(self.cells)[cells],
            )
        )

    def _distance(self, gap: Gap | None, configuration: Configuration) -> float:
        """Return |ln| of the ratio to the nearest measured batch or world size.

        Where nothing says how the time goes with it, it may be anything between not at all and in
        proportion.
        """
        if gap is None or gap.axis not in (Axis.BATCH, Axis.WORLD_SIZE):
            return 0.0
        value = self.space.value(plain(configuration), gap.axis)
        known = {self.space.value(c, gap.axis) for c in self.space.configurations}
        assert value is not None
        return min((abs(math.log(value / v)) for v in known if v), default=0.0)


def calibrate(
    observations: Sequence[Observation],
    predictor: Predictor,
    *,
    fitted: FittedPredictor,
    asked: Iterable[Configuration] | None,
) -> Calibration:
    """Hold out as the questions `asked` need it, or else as any question might; see `kinds`.

    `fitted`: the predictor fitted to all observations.
    """
    import numpy as np

    space = Space.of(o.configuration for o in observations)
    neighbourhood = Neighbourhood.of(space)
    needed = kinds(space)
    if asked is not None:
        gaps = {gap for configuration in asked for gap in space.gaps(configuration)}
        needed = {None, *(kind_of(gap) for gap in gaps)}
    configurations = [plain(o.configuration) for o in observations]
    cell_of = {c: number for number, c in enumerate(dict.fromkeys(configurations))}
    return Calibration(
        observations=tuple(observations),
        space=space,
        neighbourhood=neighbourhood,
        places=neighbourhood.locate(configurations),
        cells=np.array([cell_of[c] for c in configurations], dtype=np.int64),
        cell_of=cell_of,
        tables={
            kind: hold_out(observations, predictor, kind, fitted=fitted)
            for kind in sorted(needed, key=repr)
        },
        conformals={},
    )


def kinds(space: Space) -> set[Kind]:
    """Return the kinds of questions that one may ask: what varies at all may be asked elsewhere.

    A value that one strategy lacks while another has it is a kind of its own where that occurs.
    """
    curves: dict[tuple[object, ...], list[Configuration]] = {}
    for configuration in space.configurations:
        if not configuration.is_one_machine:
            curves.setdefault(names(configuration), []).append(configuration)
    found: set[Kind] = {None}
    if len(curves) > 1:
        found.add((Axis.NAMES, False))
    for axis in NUMBERS:
        everywhere = {v for c in space.configurations if (v := space.value(c, axis)) is not None}
        if len(everywhere) < 2:
            continue
        found.add((axis, True))
        own = [{space.value(c, axis) for c in curve} for curve in curves.values()]
        if len(curves) > 1 and any(values != own[0] for values in own):
            found.add((axis, False))
    return found
