"""The interface of predictors: they are fitted once, and then predict any configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from farm.recommend.configuration import Configuration, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEstimate:
    """One predicted time, or None with the reason.

    `log_scale` is the predictor's own idea of how far off ln(time) may be, in units of that
    logarithm; only its proportions matter, since intervals are calibrated on held-out errors.
    """

    step_time_s: float | None
    log_scale: float = 1.0
    unknown_because: str | None = None

    def __post_init__(self) -> None:
        assert (self.step_time_s is None) == (self.unknown_because is not None)


class FittedPredictor(Protocol):
    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        """Return an estimate for each, in order; times are above 0."""
        ...


class Predictor(Protocol):
    @property
    def name(self) -> str: ...

    def fit(self, observations: Sequence[Observation]) -> FittedPredictor:
        """Learn from observations of one origin and kind of hardware, in any number and order.

        Deterministic: the same observations give the same predictions. With too few of them the
        estimates say so, and fitting raises nothing.
        """
        ...
