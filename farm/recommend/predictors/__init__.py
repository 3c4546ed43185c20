"""The predictors of a synchronous step's time, by name: one file and one line each."""

from __future__ import annotations

from farm.recommend.predictors.contracts import Predictor
from farm.recommend.predictors.physical import Physical

PREDICTORS: dict[str, Predictor] = {p.name: p for p in (Physical(),)}
DEFAULT_PREDICTOR = "physical"
