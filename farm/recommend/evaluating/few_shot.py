"""Evaluates advice after few measurements, planned or random. Pure.

A data set serves as ground truth. The simulated user starts with no measurements, knows which
configurations exist, and sees the results of those that were measured, including failures. A
failure costs one measurement. One machine is measured once for all delays.

A seed determines all random choices: which repetition a measurement returns, an additional error
exp(N(0, noise)), the order of equally good proposals, the step times that a plan draws, and the
random sample. The final comparison uses the data set itself: the median of all repetitions, without
errors.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.evaluating.questions import Factor, choices
from farm.recommend.evaluating.questions import factor as factor_of
from farm.recommend.evaluating.scores import RegretScore, regret_score
from farm.recommend.features import canonical
from farm.recommend.plans.belief import believe
from farm.recommend.plans.planner import Candidate, plan
from farm.recommend.predictors import PREDICTORS
from farm.recommend.predictors.contracts import Predictor

ROUND_COUNT = 3  # measurements that are planned at once, before anything of them is known
_NOISE_LOG = 0.02  # the median difference between repetitions in Graur's thesis


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShotTrial:
    """Measure up to so many of the configurations, planned or at random, and then choose."""

    predictor_name: str
    counts: tuple[int, ...]
    is_planned: bool
    seed: int
    machine_price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShotScore:
    """`choices`: over all seeds; `errors` are not counted, since what is chosen is what matters."""

    predictor: str
    measurement_count: int
    is_planned: bool
    seed_count: int
    choices: RegretScore


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """What can be measured: repetitions by configuration, one machine without its network.

    `failures` cost a measurement, and are no option of any choice.
    """

    repetitions: Mapping[Configuration, tuple[Observation, ...]]
    failures: frozenset[Configuration]

    @classmethod
    def of(
        cls, observations: Sequence[Observation], failures: Collection[Configuration] = ()
    ) -> GroundTruth:
        groups: dict[Configuration, list[Observation]] = {}
        for observation in observations:
            groups.setdefault(canonical(observation.configuration), []).append(observation)
        failed = {canonical(c) for c in failures} - set(groups)
        return cls(
            repetitions={c: tuple(group) for c, group in groups.items()},
            failures=frozenset(failed),
        )

    @property
    def configurations(self) -> list[Configuration]:
        """All that may be measured, in an order that does not depend on the rows'."""
        return sorted([*self.repetitions, *self.failures], key=repr)

    def step_time_s(self, configuration: Configuration) -> float:
        """Return the median of the repetitions."""
        return statistics.median(o.step_time_s for o in self.repetitions[canonical(configuration)])


def run_few_shot(
    observations: Sequence[Observation],
    trial: FewShotTrial,
    *,
    failures: Sequence[Configuration] = (),
) -> Mapping[int, list[float]]:
    """Return the regret of every choice after each number of measurements."""
    truth = GroundTruth.of(observations, failures)
    return few_shot(
        truth,
        counts=trial.counts,
        seed=trial.seed,
        is_planned=trial.is_planned,
        predictor=PREDICTORS[trial.predictor_name],
        factor=factor_of(truth.configurations, machine_price=trial.machine_price),
    )


def few_shot(
    truth: GroundTruth,
    *,
    counts: Sequence[int],
    seed: int,
    is_planned: bool,
    predictor: Predictor | None = None,
    noise_log: float = _NOISE_LOG,
    factor: Factor | None = None,
) -> dict[int, list[float]]:
    """Measure as many as the largest of `counts`; return each choice's regret after each of them.

    `predictor` answers in the end, the plan's own belief where it is None. `factor`: what makes a
    step time the quantity that is minimised, such as 1 + machines / 16; see `Candidate`.
    """
    campaign = _Campaign(truth, random.Random(seed), noise_log, factor or (lambda _: 1.0))
    found = {}
    for count in sorted(set(counts)):
        if is_planned:
            campaign.measure_planned(count, seed=seed)
        else:
            campaign.measure_random(count)
        found[count] = campaign.regrets(predictor)
    return found


def summarise_few_shot(
    found: Iterable[tuple[FewShotTrial, Mapping[int, list[float]]]],
) -> list[FewShotScore]:
    """Pool the regrets of all seeds."""
    pooled: dict[tuple[str, bool, int], list[list[float]]] = {}
    for trial, regrets in found:
        for count, ratios in regrets.items():
            key = (trial.predictor_name, trial.is_planned, count)
            pooled.setdefault(key, []).append(ratios)
    return [
        FewShotScore(
            predictor=name,
            measurement_count=count,
            is_planned=is_planned,
            seed_count=len(groups),
            choices=regret_score([ratio for group in groups for ratio in group]),
        )
        for (name, is_planned, count), groups in pooled.items()
    ]


class _Campaign:
    """What was measured so far."""

    def __init__(
        self, truth: GroundTruth, random: random.Random, noise_log: float, factor: Factor
    ) -> None:
        self._truth = truth
        self._random = random
        self._noise_log = noise_log
        self._factor = factor
        self._order = random.sample(truth.configurations, len(truth.configurations))
        self._observations: list[Observation] = []
        self._failures: list[Configuration] = []

    @property
    def _measured_count(self) -> int:
        return len(self._observations) + len(self._failures)

    def measure_planned(self, count: int, *, seed: int) -> None:
        """Go on until `count` measurements, in rounds that end at multiples of a round."""
        candidates = [
            Candidate(configuration=c, cost=1.0, objective_factor=self._factor(c))
            for c in self._order
        ]
        while self._measured_count < count:
            size = ROUND_COUNT - self._measured_count % ROUND_COUNT
            planned = plan(
                self._observations,
                candidates,
                failures=self._failures,
                count=min(size, count - self._measured_count),
                seed=seed,
            )
            for proposal in planned.proposals:
                self._measure(proposal.configuration)
            if not planned.proposals:
                return  # nothing that is left can change an answer

    def measure_random(self, count: int) -> None:
        for configuration in self._order[self._measured_count : count]:
            self._measure(configuration)

    def _measure(self, configuration: Configuration) -> None:
        repetitions = self._truth.repetitions.get(canonical(configuration))
        if repetitions is None:
            self._failures.append(configuration)
            return
        seen = self._random.choice(repetitions)
        error = math.exp(self._random.gauss(0, self._noise_log))
        self._observations.append(dataclasses.replace(seen, step_time_s=seen.step_time_s * error))

    def regrets(self, predictor: Predictor | None) -> list[float]:
        """Return true time of the chosen / true best - 1, of every choice in the data set."""
        possible = list(self._truth.repetitions)
        true = [self._truth.step_time_s(c) * self._factor(c) for c in possible]
        times_s = self._known_times_s(possible, predictor)
        found = []
        for options in choices(possible):
            known = [i for i in options if times_s[i] is not None]
            # Who knows nothing at all begins with the fewest machines.
            chosen = (
                min(known, key=lambda i: times_s[i] or 0.0)
                if known
                else min(options, key=lambda i: possible[i].machine_count)
            )
            found.append(true[chosen] / min(true[i] for i in options) - 1)
        return found

    def _known_times_s(
        self, configurations: Sequence[Configuration], predictor: Predictor | None
    ) -> list[float | None]:
        """Return what is known of each: measured where it was, predicted elsewhere, or None."""
        measured: dict[Configuration, list[float]] = {}
        for o in self._observations:
            measured.setdefault(canonical(o.configuration), []).append(o.step_time_s)
        predicted = self._predicted(configurations, predictor)
        times_s = [
            statistics.median(measured[canonical(c)]) if canonical(c) in measured else time_s
            for c, time_s in zip(configurations, predicted, strict=True)
        ]
        return [
            None if time_s is None else time_s * self._factor(c)
            for c, time_s in zip(configurations, times_s, strict=True)
        ]

    def _predicted(
        self, configurations: Sequence[Configuration], predictor: Predictor | None
    ) -> list[float | None]:
        if predictor is None:
            belief = believe(self._observations, configurations)
            return [math.exp(mean) for mean in belief.mean]
        estimates = predictor.fit(self._observations).predict(configurations)
        return [estimate.step_time_s for estimate in estimates]
