"""A random forest, kept for comparison with the default predictor.

It uses no physics. Between measurements it predicts steps, and beyond them a constant. On small
tables its errors are several times those of the other predictors (docs/recommender.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import NAMES, KnownConditions
from farm.recommend.predictors.columns import FeatureColumns, cells_of
from farm.recommend.predictors.contracts import PointEstimate
from farm.recommend.predictors.estimates import equally_doubtful, estimates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TREE_COUNT = 100


class Forest:
    name = "random_forest"

    def fit(self, observations: Sequence[Observation]) -> FittedForest:
        return FittedForest(observations)


class FittedForest:
    def __init__(self, observations: Sequence[Observation]) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self._known = KnownConditions.of(observations)
        self._values: list[tuple[str, object]] = []
        self._forest: Any = RandomForestRegressor(n_estimators=_TREE_COUNT, random_state=0)
        if not observations:
            return
        cells = cells_of(observations)
        self._values = sorted(
            {(name, getattr(c, name)) for c in cells.configurations for name in NAMES}, key=repr
        )
        self._forest.fit(self._features(cells.columns), cells.logs, sample_weight=cells.weights)

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._known, configurations, equally_doubtful(self._times_s))

    def _times_s(self, columns: FeatureColumns) -> NDArray[np.float64]:
        import numpy as np

        times_s: NDArray[np.float64] = np.exp(self._forest.predict(self._features(columns)))
        return times_s

    def _features(self, columns: FeatureColumns) -> NDArray[np.float64]:
        import numpy as np

        batches = [columns.batch_sizes, columns.replica_batch_sizes]
        numbers = [columns.world_sizes, *batches, columns.server_counts, columns.places[:, 1:]]
        names = [
            columns.of_families(
                [float(family.names[NAMES.index(name)] == value) for family in columns.families]
            )
            for name, value in self._values
        ]
        return np.column_stack([*numbers, *names])
