"""What repetitions of one configuration say: of it, and of how much any one measurement varies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.core.student import student_quantile
from farm.recommend.calibrated.intervals import Interval, prediction_interval
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain

# With fewer, the common noise itself is hardly known.
_LEAST_DEGREES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """All measurements by configuration, and the variance of ln(time) that they have in common.

    `log_variance`: pooled over the configurations that were repeated, with so many `degrees` of
    freedom.
    """

    observations: Mapping[Configuration, tuple[Observation, ...]]
    log_variance: float
    degrees: int

    @classmethod
    def of(cls, observations: Iterable[Observation]) -> Repetitions:
        groups: dict[Configuration, list[Observation]] = {}
        for observation in observations:
            groups.setdefault(plain(observation.configuration), []).append(observation)
        squares = 0.0
        degrees = 0
        for group in groups.values():
            logs = [math.log(o.step_time_s) for o in group]
            mean = statistics.fmean(logs)
            squares += sum((log - mean) ** 2 for log in logs)
            degrees += len(logs) - 1
        return cls(
            observations={c: tuple(group) for c, group in groups.items()},
            log_variance=squares / degrees if degrees else 0.0,
            degrees=degrees,
        )

    def interval(self, times_s: Sequence[float], *, aim_ratio: float) -> Interval | None:
        """Return where one more repetition falls; None where too few say how much they vary.

        Three repetitions speak for themselves. Fewer borrow the common variance, weighted by
        degrees of freedom: exp(m -+ t s sqrt(1 + 1/n)) with m the mean of ln(time).
        """
        own = prediction_interval(times_s, coverage_ratio=aim_ratio)
        if own is not None or self.degrees < _LEAST_DEGREES:
            return own
        n = len(times_s)
        mean = statistics.fmean(math.log(time_s) for time_s in times_s)
        # What is repeated at all is already among the pooled.
        half = student_quantile((1 + aim_ratio) / 2, self.degrees)
        half *= math.sqrt(self.log_variance * (1 + 1 / n))
        return Interval(low_s=math.exp(mean - half), high_s=math.exp(mean + half))


def weighted_median_s(observations: Sequence[Observation]) -> float:
    """Return the median time, each repetition counted by its weight."""
    ordered = sorted(observations, key=lambda o: o.step_time_s)
    half = sum(o.weight for o in ordered) / 2
    reached = 0.0
    for index, observation in enumerate(ordered):
        reached += observation.weight
        if math.isclose(reached, half) and index + 1 < len(ordered):
            return (observation.step_time_s + ordered[index + 1].step_time_s) / 2
        if reached >= half:
            return observation.step_time_s
    raise AssertionError("there is one observation at least")
