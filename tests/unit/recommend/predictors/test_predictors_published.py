"""The errors on published measurements that were held out, with a little slack.

`farm evaluate` has all of them; these are quick, and each one once.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

import pytest

from farm.importers.anwar2021 import ANWAR2021
from farm.importers.contracts import Publication, read_publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.imported import ImportedMeasurement
from farm.recommend.calibrated.splits import Fold, all_splits, beyond_largest
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors import DEFAULT_PREDICTOR, PREDICTORS
from farm.recommend.setup import Setup

_FIELDS = [field.name for field in dataclasses.fields(Configuration) if field.name != "setup"]


def observations_of(publication: Publication) -> list[Observation]:
    return [
        Observation(
            measurement_id=row.row_number,
            configuration=Configuration(
                **{name: _value(row, name) for name in _FIELDS},
                setup=Setup.read(_value(row, "placement")),
            ),
            step_time_s=row["step_time_s"],
        )
        for row in read_publication(publication).measurements
        if row["step_time_s"] is not None
    ]


def _value(row: ImportedMeasurement, name: str) -> Any:
    return getattr(row, name) if hasattr(row, name) else row[name]


def median_error(
    observations: list[Observation], folds: Iterable[Fold], predictor: str = DEFAULT_PREDICTOR
) -> float:
    errors = []
    for fold in folds:
        fitted = PREDICTORS[predictor].fit([observations[i] for i in fold.training])
        tested = [observations[i] for i in fold.tested]
        found = fitted.predict([o.configuration for o in tested])
        for observation, estimate in zip(tested, found, strict=True):
            assert estimate.step_time_s is not None
            errors.append(abs(estimate.step_time_s / observation.step_time_s - 1))
    return statistics.median(errors)


@pytest.mark.parametrize(
    ("split", "limit"), [("random", 0.03), ("batch", 0.035), ("delay, not the first or last", 0.03)]
)
def test_anwar2021(split: str, limit: float) -> None:
    observations = observations_of(ANWAR2021)
    [folds] = [s.folds for s in all_splits(observations) if s.name == split]
    assert median_error(observations, folds) <= limit


def test_graur2019_beyond_the_largest_world_size() -> None:
    observations = observations_of(GRAUR2019)
    fold = beyond_largest([o.configuration for o in observations], from_size=24)
    assert median_error(observations, [fold]) <= 0.07


def test_graur2019_at_random() -> None:
    """Of the physical sum alone, which is quick; the default is a little better."""
    observations = observations_of(GRAUR2019)
    folds = all_splits(observations)[0].folds
    assert median_error(observations, folds, "physical") <= 0.04


def test_a_forest_is_several_times_worse() -> None:
    observations = observations_of(ANWAR2021)
    [folds] = [s.folds for s in all_splits(observations) if s.name == "batch"]
    assert median_error(observations, folds, "random_forest") > 0.1
