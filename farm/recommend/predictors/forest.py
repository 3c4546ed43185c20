"""A random forest, to show why it is not the default.

It knows no physics: between measurements it makes steps, and beyond them it goes on as it ended.
On small tables its errors are several times those of the others (docs/recommender.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import CONDITIONS, NAMES, Known, amounts, column, plain
from farm.recommend.predictors.cells import cells_of
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

        self._known = Known.of(observations)
        self._values: list[tuple[str, object]] = []
        self._forest: Any = RandomForestRegressor(n_estimators=_TREE_COUNT, random_state=0)
        if not observations:
            return
        cells = cells_of(observations)
        self._values = sorted(
            {(name, getattr(c, name)) for c in cells.configurations for name in NAMES}, key=repr
        )
        self._forest.fit(
            self._features(cells.configurations), cells.logs, sample_weight=cells.weights
        )

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return estimates(self._known, configurations, equally_doubtful(self._times_s))

    def _times_s(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        import numpy as np

        features = self._features([plain(c) for c in configurations])
        times_s: NDArray[np.float64] = np.exp(self._forest.predict(features))
        return times_s

    def _features(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        import numpy as np

        n = column(configurations, "world_size")
        batch = column(configurations, "global_batch_size")
        numbers = [n, batch, batch / n, column(configurations, "server_count")]
        numbers += [amounts(configurations, name) for name in CONDITIONS]
        names = [
            [float(getattr(c, name) == value) for c in configurations]
            for name, value in self._values
        ]
        return np.stack([*numbers, *(np.array(own) for own in names)], axis=1)
