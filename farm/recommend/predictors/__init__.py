"""The predictors of a synchronous step's time, by name: one file and one line each."""

from __future__ import annotations

from farm.recommend.predictors.contracts import Predictor
from farm.recommend.predictors.ensemble import Ensemble
from farm.recommend.predictors.forest import Forest
from farm.recommend.predictors.gaussian_process import BY_PART, SMOOTH, GaussianProcess
from farm.recommend.predictors.neighbours import Neighbours
from farm.recommend.predictors.physical import Physical

PREDICTORS: dict[str, Predictor] = {
    predictor.name: predictor
    for predictor in (
        Ensemble(),
        GaussianProcess("gaussian_process", SMOOTH),
        GaussianProcess("gaussian_process_by_part", BY_PART),
        Neighbours(),
        Physical(),
        Forest(),
    )
}
DEFAULT_PREDICTOR = "ensemble"
