"""A model of step times whose truth is known: so many seconds an example, and one a round trip."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.suspicious import Suspicion
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Basis, Prediction

SECONDS_PER_EXAMPLE = 0.01
ROUND_TRIPS = 4.0
HALF_WIDTH = 0.25  # of the 90 % interval, over the time; the 80 % one has half of it


@dataclass(frozen=True, slots=True)
class FakeStepTimes:
    """Predicts by the formula, scaled; measured configurations by their repetitions' median."""

    observations: tuple[Observation, ...] = ()
    scale: float = 1.0
    unknown: frozenset[str] = frozenset()  # strategies
    predictor_name: str = "fake"
    suspicions: tuple[Suspicion, ...] = ()

    @classmethod
    def fit(cls, observations: Sequence[Observation]) -> FakeStepTimes:
        """Take the scale from the observations, so that it follows their unit."""
        ratios = [o.step_time_s / truth_s(o.configuration) for o in observations]
        return cls(observations=tuple(observations), scale=statistics.median(ratios))

    def predict(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        return [self._one(configuration) for configuration in configurations]

    def _one(self, configuration: Configuration) -> Prediction:
        own = [o for o in self.observations if o.configuration == configuration]
        if own:
            median_s = statistics.median(o.step_time_s for o in own)
            ids = tuple(o.measurement_id for o in own)
            return prediction(median_s, basis=Basis.MEASURED, measurement_ids=ids)
        if configuration.strategy in self.unknown:
            return prediction(None, basis=Basis.UNKNOWN, unknown_because="never measured")
        return prediction(self.scale * truth_s(configuration), basis=Basis.INTERPOLATED)


def truth_s(configuration: Configuration) -> float:
    """The time of a step: computing, divided among the ranks, and round trips for gangs."""
    computing_s = SECONDS_PER_EXAMPLE * configuration.per_replica_batch_size
    if configuration.is_one_machine:
        return computing_s
    return computing_s + ROUND_TRIPS * 2 * configuration.one_way_delay_s + 0.001


def prediction(
    step_time_s: float | None,
    *,
    basis: Basis,
    measurement_ids: tuple[int, ...] = (),
    unknown_because: str | None = None,
) -> Prediction:
    """A prediction with intervals of the fake's width."""
    ends = (1 - HALF_WIDTH, 1 + HALF_WIDTH, 1 - HALF_WIDTH / 2, 1 + HALF_WIDTH / 2)
    low, high, low80, high80 = (None if step_time_s is None else step_time_s * e for e in ends)
    return Prediction(
        step_time_s=step_time_s,
        low_s=low,
        high_s=high,
        low80_s=low80,
        high80_s=high80,
        basis=basis,
        measurement_ids=measurement_ids,
        unknown_because=unknown_because,
    )
