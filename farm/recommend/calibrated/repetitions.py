"""Noise of single measurements, estimated from repetitions."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.intervals import (
    MIN_REPETITIONS,
    Interval,
    distinct,
    prediction_interval,
)
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import AIMS
from farm.recommend.features import (
    amount,
    canonical,
    names_of,
    names_of_one_machine,
    rounded,
    without_names,
)
from farm.statistics import student_quantile, weighted_median

# With fewer, the common noise itself is hardly known.
_LEAST_DEGREES = 3
# Of ln(time): by how much repetitions of one machine differ in graur2019, the median of ten
# configurations. It counts as half a degree of freedom, so that no common noise is ever 0.
_PRIOR_DEVIATION, _PRIOR_DEGREES = 0.02, 0.5
# Three repetitions of the common noise have less than this share of it in 6 % of all cases.
_LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much measurements vary: the pooled sum of squares of ln(time), and its degrees."""

    squares: float = 0.0
    degrees: int = 0
    prior_deviation: float = _PRIOR_DEVIATION

    def __add__(self, other: Noise) -> Noise:
        return Noise(squares=self.squares + other.squares, degrees=self.degrees + other.degrees)

    @property
    def deviation(self) -> float | None:
        """The standard deviation; None where too few repetitions tell it."""
        return None if self.degrees < _LEAST_DEGREES else self.estimate

    @property
    def estimate(self) -> float:
        """The standard deviation, however few repetitions tell it."""
        squares = self.squares + _PRIOR_DEGREES * self.prior_deviation**2
        return math.sqrt(squares / (self.degrees + _PRIOR_DEGREES))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoiseGroup:
    """What measurements vary alike with: their names, and how much there is to disturb them.

    `of_machines`: the names that one machine has too. `of_gangs`: all; None: of one machine.
    `amounts`: machines and conditions of the network, of which more makes no step steadier.
    """

    of_machines: tuple[object, ...]
    of_gangs: tuple[object, ...] | None
    amounts: tuple[float, ...]

    @classmethod
    def of(cls, configuration: Configuration) -> _NoiseGroup:
        """Return the group of a configuration: what is equal where repetitions differ alike."""
        c = canonical(configuration)
        return cls(
            of_machines=names_of_one_machine(c),
            of_gangs=None if c.is_one_machine else names_of(c),
            amounts=(
                *(c.world_size, c.server_count),
                *(
                    rounded(amount(name, value)) if value else 0.0
                    for name, value in c.by_field.items()
                ),
            ),
        )

    def is_as_hard_as(self, other: _NoiseGroup) -> bool:
        """Whether it is the same with as much of everything, or more; a gang has its machines."""
        return (
            self.of_machines == other.of_machines
            and other.of_gangs in (None, self.of_gangs)
            and all(own >= least for own, least in zip(self.amounts, other.amounts, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """All measurements by configuration, and the noise of each kind that was repeated.

    A repetition is a distinct value, see `farm.recommend.calibrated.intervals.distinct`.
    """

    observations: Mapping[Configuration, tuple[Observation, ...]]
    of_gangs: Noise
    of_one_machine: Noise
    of_groups: Mapping[_NoiseGroup, Noise]

    @classmethod
    def of(cls, observations: Iterable[Observation]) -> Repetitions:
        """Group observations by configuration, and sum up the noise of each kind of group."""
        groups: dict[Configuration, list[Observation]] = {}
        for observation in observations:
            groups.setdefault(canonical(observation.configuration), []).append(observation)
        noises = {True: Noise(), False: Noise()}
        of_groups: dict[_NoiseGroup, Noise] = {}
        for configuration, group in groups.items():
            logs = [math.log(time_s) for time_s in distinct([o.step_time_s for o in group])]
            if len(logs) < 2:
                continue
            mean = statistics.fmean(logs)
            noise = Noise(squares=sum((log - mean) ** 2 for log in logs), degrees=len(logs) - 1)
            noises[configuration.is_one_machine] += noise
            kind = _NoiseGroup.of(configuration)
            of_groups[kind] = of_groups.get(kind, Noise()) + noise
        return cls(
            observations={c: tuple(group) for c, group in groups.items()},
            of_gangs=noises[False],
            of_one_machine=noises[True],
            of_groups=of_groups,
        )

    def interval(self, configuration: Configuration, *, aim_ratio: float) -> Interval | None:
        """Return where one more repetition falls; None where too few say how much they vary.

        Three repetitions speak for themselves, unless they differ by far less than others do.
        Fewer borrow the noise of others, by its degrees of freedom: exp(m -+ t s sqrt(1 + 1/n))
        with m the mean of ln(time). What no network disturbs says nothing of how gangs vary.
        """
        times_s = [o.step_time_s for o in self.observations[canonical(configuration)]]
        noise = self._noise(configuration)
        deviation = noise.deviation
        own = prediction_interval(
            times_s, coverage_ratio=aim_ratio, least_deviation=_LEAST_SHARE * noise.estimate
        )
        if own is not None or deviation is None:
            return own
        logs = [math.log(time_s) for time_s in distinct(times_s)]
        mean = statistics.fmean(logs)
        # What is repeated at all is already among the pooled.
        half = student_quantile((1 + aim_ratio) / 2, noise.degrees)
        half *= deviation * math.sqrt(1 + 1 / len(logs))
        return Interval.around(math.exp(mean), half)

    def tells(self, configuration: Configuration) -> bool:
        """Whether repetitions say how much this one varies: its own, or those of its kind."""
        times_s = [o.step_time_s for o in self.observations[canonical(configuration)]]
        return len(distinct(times_s)) >= MIN_REPETITIONS or self._of_kind(configuration) is not None

    def least_half_widths(self, configuration: Configuration) -> list[float]:
        """Return in ln(time), for each of `AIMS`, how far off one more run of it may be.

        However regular the others are: computed tables, and those of few digits, are predicted
        without an error.
        """
        deviation = _LEAST_SHARE * math.sqrt(2) * self._noise(configuration).estimate
        normal = statistics.NormalDist()
        return [normal.inv_cdf((1 + aim_ratio) / 2) * deviation for aim_ratio in AIMS]

    def _noise(self, configuration: Configuration) -> Noise:
        """Return that of its kind; where that was hardly repeated, of all gangs or machines."""
        pooled = self.of_gangs
        if canonical(configuration).is_one_machine:
            is_enough = self.of_one_machine.degrees >= _LEAST_DEGREES
            pooled = self.of_one_machine if is_enough else self.of_one_machine + pooled
        of_kind = self._of_kind(configuration)
        if of_kind is None:
            return pooled
        # On a quiet farm no kind is held to be noisier than all together.
        prior = min(_PRIOR_DEVIATION, pooled.estimate)
        return dataclasses.replace(of_kind, prior_deviation=prior)

    def _of_kind(self, configuration: Configuration) -> Noise | None:
        """Return the noise of the same kind, or else of the same names where more disturbs them.

        So one machine and four are told by eight, and a delay by a longer one, but not the other
        way round: what was steady with less may not be with more. None: too few were repeated.
        """
        group = _NoiseGroup.of(configuration)
        own = self.of_groups.get(group, Noise())
        if own.degrees < _LEAST_DEGREES:
            harder = (noise for kind, noise in self.of_groups.items() if kind.is_as_hard_as(group))
            own = sum(harder, start=Noise())
        return own if own.degrees >= _LEAST_DEGREES else None


def counted_once(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations; those of a configuration that repeat a value share one weight."""
    copies = collections.Counter(_values_s(observations))
    return [
        dataclasses.replace(o, weight=o.weight / copies[value]) if copies[value] > 1 else o
        for o, value in zip(observations, _values_s(observations), strict=True)
    ]


def experiment_weights(observations: Sequence[Observation]) -> list[float]:
    """Return how much each counts as an experiment, 1 for a value that nothing repeats.

    The repetitions of a configuration share 1, each distinct value alike; so do configurations
    that differ in names alone and have one value, as of a baseline that is printed for each.
    """
    own = _values_s(observations)
    copies = collections.Counter(own)
    of_cell = collections.Counter(configuration for configuration, _ in copies)
    printed = {value: value_of(o) for value, o in zip(own, observations, strict=True)}
    alike = collections.Counter(printed.values())
    return [1 / (copies[value] * of_cell[value[0]] * alike[printed[value]]) for value in own]


def value_of(observation: Observation) -> Hashable:
    """Return the time with what is no name: equal where one value stands under several names."""
    return without_names(observation.configuration), f"{observation.step_time_s:.5g}"


def _values_s(observations: Sequence[Observation]) -> list[tuple[Configuration, float]]:
    """Return for each its configuration and the least of the times that are one with its own."""
    groups: dict[Configuration, list[float]] = {}
    for observation in observations:
        groups.setdefault(canonical(observation.configuration), []).append(observation.step_time_s)
    values_s = {configuration: distinct(times_s) for configuration, times_s in groups.items()}
    found = []
    for observation in observations:
        configuration = canonical(observation.configuration)
        known = values_s[configuration]
        kept = bisect.bisect_right(known, observation.step_time_s) - 1
        found.append((configuration, known[kept]))
    return found


def weighted_median_s(observations: Sequence[Observation]) -> float:
    """Return the median time, each repetition counted by its weight."""
    return weighted_median([(o.step_time_s, o.weight) for o in observations])
