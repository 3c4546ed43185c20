"""Measurements by configuration: repetitions are one value, known the better for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain
from farm.recommend.predictors.columns import FeatureColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Inverting costs their number's cube, thirty times over; see docs/recommender.md.
MAX_CELLS = 1500
LEAST_WEIGHT = 1e-3  # so that nothing is divided by 0


@dataclass(frozen=True, slots=True)
class Cells:
    """n configurations, plain and distinct, the mean of ln(time) of each and its weight.

    `columns`: the same configurations.
    """

    configurations: tuple[Configuration, ...]
    columns: FeatureColumns
    logs: NDArray[np.float64]
    weights: NDArray[np.float64]


def cells_of(observations: Sequence[Observation]) -> Cells:
    """Pool repetitions, in an order that does not depend on that of the observations.

    Of more than `MAX_CELLS` configurations so many are taken, evenly over that order.
    """
    import numpy as np

    groups: dict[Configuration, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(plain(observation.configuration), []).append(observation)
    ordered = sorted(groups, key=repr)
    kept = [ordered[i] for i in spread(len(ordered), MAX_CELLS)]
    logs, weights = np.zeros(len(kept)), np.zeros(len(kept))
    for i, configuration in enumerate(kept):
        own = [
            (math.log(o.step_time_s), max(o.weight, LEAST_WEIGHT)) for o in groups[configuration]
        ]
        weights[i] = math.fsum(weight for _, weight in own)
        logs[i] = math.fsum(log * weight for log, weight in own) / weights[i]
    return Cells(tuple(kept), FeatureColumns.of(kept), logs, weights)


def spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most that many positions of `count`, evenly, with the first and the last."""
    import numpy as np

    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.linspace(0, count - 1, most).round().astype(np.int64)
