"""Chooses the measurements that reduce the uncertainty of advice most for their cost. Pure.

A plan uses the measurements and the predictions for all other cells. It has two stages. While
little is known about the parts of a step, it chooses the measurement that tells most about them
(see `start_positions`). Later it chooses the one that reduces the expected regret most per cost.
Several measurements of a plan are chosen one after another. Each choice assumes that the earlier
ones have been measured, in every drawn set of true times, so they are not all alike.

A curve is the step times of one strategy over the world size, on one kind of machine and network.
Its smallest world size, its largest, and the one between them that is nearest to 8 determine how
the time of an exchange grows. To determine the coefficients of the physical terms, one more
configuration than there are terms is needed.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farm.configuration.words import network_words
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import MAX_PLANNED
from farm.recommend.evaluating.questions import Positions, choices
from farm.recommend.features import NAMES, canonical
from farm.recommend.plans.belief import (
    Belief,
    ExpectedRegret,
    believe,
    expected_regret,
    measured,
    regret_ratios,
    regret_ratios_after,
)
from farm.recommend.predictors.contracts import Predictor
from farm.text.plurals import counted

_ENOUGH_RATIO = 0.97  # of the best gain: the belief is not worth the rest
_MIDDLE_WORLD_SIZE = 8
LEAST_CONFIGURATIONS = 6  # a step without a bandwidth limit has five terms; one checks them
# Of the mean of ln(time). Of a single measurement it is what repetitions of others differ by.
ENOUGH_LOG = 0.03
# What is less believed than this was flagged as suspicious: that is a reason to measure it again.
_BELIEVED = 0.5
# However much it varies, more of the same does not change that.
_MOST_REPETITIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What may be measured, or chosen. `cost`: of one measurement, USD or machine hours.

    What is minimised is step time x `objective_factor`: with a price of p USD per machine and
    second, alpha x time + beta x cost is time x (alpha + beta p machines).
    """

    configuration: Configuration
    cost: float
    objective_factor: float = 1.0

    def __post_init__(self) -> None:
        assert self.cost > 0
        assert self.objective_factor > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMeasurement:
    """One measurement. The regrets are the means over all choices, before it and after it."""

    configuration: Configuration
    cost: float
    reason: str
    regret_before_ratio: float
    regret_after_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """`proposals`: in the order to measure them. `stopped_because`: fewer than were asked for."""

    proposals: tuple[PlannedMeasurement, ...]
    choice_count: int
    regret_before_ratio: float
    regret_after_ratio: float
    stopped_because: str | None = None

    @property
    def cost(self) -> float:
        """All proposals together, in the candidates' unit."""
        return math.fsum(proposal.cost for proposal in self.proposals)


def plan(
    observations: Sequence[Observation],
    candidates: Sequence[Candidate],
    *,
    predictor: Predictor | None = None,
    failures: Collection[Configuration] = (),
    count: int = MAX_PLANNED,
    until_regret_ratio: float | None = None,
    budget: float | None = None,
    seed: int = 0,
) -> MeasurementPlan:
    """Choose up to `count` measurements, until the expected regret or the budget is reached.

    `failures` are known not to work: neither proposed nor chosen. `predictor` makes the means,
    else the belief's own are taken. Deterministic for a seed, which decides between equals and
    draws the possible truths.
    """
    failed = {canonical(c) for c in failures}
    known = [c for c in _distinct(candidates) if canonical(c.configuration) not in failed]
    configurations = [c.configuration for c in known]
    found = choices(configurations)
    fitted = predictor.fit(observations) if predictor and observations else None
    belief = believe(observations, configurations, fitted=fitted)
    factors = np.log([c.objective_factor for c in known])
    future = expected_regret(belief, found, log_factors=factors, seed=seed)
    search = _Search(
        candidates=known,
        choices=found,
        belief=belief,
        tested=[canonical(o.configuration) for o in observations] + sorted(failed, key=repr),
        precise=precisely_measured(observations),
        once=frozenset((c for c, own in _believed_logs(observations).items() if len(own) == 1)),
        random=random.Random(seed),
    )
    return search.run(future, count=count, until_regret_ratio=until_regret_ratio, budget=budget)


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    first: dict[Configuration, Candidate] = {}
    for candidate in candidates:
        first.setdefault(canonical(candidate.configuration), candidate)
    return list(first.values())


class _Search:
    """The state of one plan: what it has chosen so far."""

    def __init__(
        self,
        *,
        candidates: Sequence[Candidate],
        choices: Sequence[Positions],
        belief: Belief,
        tested: Sequence[Configuration],
        precise: Collection[Configuration],
        once: Collection[Configuration],
        random: random.Random,
    ) -> None:
        self._candidates = candidates
        self._configurations = [c.configuration for c in candidates]
        self._choices = choices
        self._belief = belief
        self._tested = list(tested)
        self._open = [i for i, c in enumerate(self._configurations) if canonical(c) not in precise]
        self._once = once
        self._random = random

    def run(
        self,
        future: ExpectedRegret,
        *,
        count: int,
        until_regret_ratio: float | None,
        budget: float | None,
    ) -> MeasurementPlan:
        """Choose measurements one by one until a limit is reached or none reduces the regret.

        `count`: at most so many; `budget`: of all of them, in the unit of their costs.
        """
        before = now = _mean(regret_ratios(future))
        most = math.inf if budget is None else budget
        proposals: list[PlannedMeasurement] = []
        stopped = None
        while len(proposals) < count:
            if until_regret_ratio is not None and now <= until_regret_ratio:
                break
            spent = [proposal.cost for proposal in proposals]
            affordable = [
                i for i in self._open if math.fsum([*spent, self._candidates[i].cost]) <= most
            ]
            # A second measurement tells how much they vary; new ones tell more.
            new = [i for i in affordable if not self._is_once(i)]
            picked = self._pick(future, new) or self._pick(future, affordable)
            if picked is None:
                stopped = self._why_stopped(affordable)
                break
            position, reason = picked
            future = measured(future, position)
            after = min(now, _mean(regret_ratios(future)))
            candidate = self._candidates[position]
            proposals.append(
                PlannedMeasurement(
                    configuration=candidate.configuration,
                    cost=candidate.cost,
                    reason=reason,
                    regret_before_ratio=now,
                    regret_after_ratio=after,
                )
            )
            now = after
            self._open.remove(position)
            self._tested.append(canonical(candidate.configuration))
        return MeasurementPlan(
            proposals=tuple(proposals),
            choice_count=len(self._choices),
            regret_before_ratio=before,
            regret_after_ratio=now,
            stopped_because=stopped,
        )

    def _pick(self, future: ExpectedRegret, positions: Sequence[int]) -> tuple[int, str] | None:
        """Return the best of the positions and why, or None where none promises anything."""
        now = regret_ratios(future)
        savings = dict(zip(positions, now - regret_ratios_after(future, positions), strict=True))
        useful = [i for i in positions if _mean(savings[i]) > 0]
        if not useful:
            return None
        start = start_positions(
            self._configurations,
            [i for i in useful if not self._is_once(i)],
            tested=self._tested,
        )
        if start:
            best = self._most_telling(future, sorted(start))
            return best, f"to begin with: {start[best]}"
        best = max(
            self._shuffled(useful), key=lambda i: _mean(savings[i]) / self._candidates[i].cost
        )
        again = "again, to tell rivals apart: " if self._is_once(best) else ""
        return best, f"{again}{self._reason(savings[best])}"

    def _is_once(self, position: int) -> bool:
        return canonical(self._configurations[position]) in self._once

    def _most_telling(self, future: ExpectedRegret, positions: Sequence[int]) -> int:
        """Return the D-optimal one: the largest gain in the log determinant of what is known.

        That gain is ln(1 + variance / noise^2) / 2. The cheapest of those with nine tenths of the
        best gain is taken.
        """
        variances = np.diag(future.covariance)
        gains = {i: math.log1p(variances[i] / future.noise_log**2) for i in positions}
        enough = _ENOUGH_RATIO * max(gains.values())
        good = [i for i in self._shuffled(positions) if gains[i] >= enough]
        return min(good, key=lambda i: self._candidates[i].cost)

    def _shuffled(self, positions: Sequence[int]) -> list[int]:
        return self._random.sample(list(positions), len(positions))

    def _reason(self, savings: NDArray[np.float64]) -> str:
        """Name the question that gains most, and how many others gain with it."""
        best = int(savings.argmax())
        options = self._choices[best]
        order = sorted(options, key=lambda i: self._belief.mean[i])
        first, second = (self._configurations[i] for i in order[:2])
        c = max(first, second, key=lambda c: c.machine_count)
        if first.world_size == second.world_size:
            rivals = f"{_way(first)} or {_way(second)} on {c.world_size}"
        else:
            rivals = f"world size {first.world_size} or {second.world_size}"
        helped = int((savings > savings[best] / 10).sum())
        network = "" if c.is_untouched else f" at {network_words(c.by_field)}"
        return (
            f"{rivals} for a batch of {c.global_batch_size}{network}"
            f" ({helped} of {len(self._choices)} questions gain)"
        )

    def _why_stopped(self, affordable: Sequence[int]) -> str:
        if not self._choices:
            return "no question has two options that could work: widen the grid"
        if not self._open:
            return "everything in the grid is measured precisely or known to fail"
        if not affordable:
            return "nothing that is left fits into the budget"
        return "no measurement that is left is expected to change an answer"


def _way(c: Configuration) -> str:
    return " ".join(filter(None, (c.strategy, c.setup.text, c.instance_type))) or "unnamed"


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def precisely_measured(observations: Iterable[Observation]) -> frozenset[Configuration]:
    """Return the configurations, without a network for one machine, that are known well enough.

    To measure them again would teach little. What was measured once is where repetitions of others
    tell how much they vary.
    """
    logs = _believed_logs(observations)
    variances = [statistics.variance(own) for own in logs.values() if len(own) > 1]
    noise_log = math.sqrt(statistics.fmean(variances)) if variances else math.inf
    return frozenset(c for c, own in logs.items() if own and _is_enough(own, noise_log))


def _believed_logs(observations: Iterable[Observation]) -> dict[Configuration, list[float]]:
    """Return ln(time) of the measurements that are believed, by configuration."""
    logs: dict[Configuration, list[float]] = {}
    for o in observations:
        own = logs.setdefault(canonical(o.configuration), [])
        if o.weight >= _BELIEVED:
            own.append(math.log(o.step_time_s))
    return logs


def _is_enough(logs: Sequence[float], noise_log: float) -> bool:
    if len(logs) >= _MOST_REPETITIONS:
        return True
    deviation = statistics.stdev(logs) if len(logs) > 1 else noise_log
    return deviation / math.sqrt(len(logs)) <= ENOUGH_LOG


def start_positions(
    configurations: Sequence[Configuration],
    positions: Iterable[int],
    *,
    tested: Iterable[Configuration],
) -> Mapping[int, str]:
    """Return the positions to measure first on their curves, each with its role in words.

    `tested`: what was measured, planned, or failed. Empty once every curve has its anchors and
    there are enough configurations.
    """
    tested = {canonical(c) for c in tested}
    done: dict[tuple[object, ...], set[int]] = {}
    for c in tested:
        done.setdefault(curve(c), set()).add(c.world_size)
    sizes: dict[tuple[object, ...], set[int]] = {}
    for c in configurations:
        sizes.setdefault(curve(c), set()).add(c.world_size)
    wanted = {
        (name, size): text
        for name, of_curve in sizes.items()
        # A curve that is known in as many places needs no beginning, wherever they are.
        if len(done.get(name, ())) < len(anchors(of_curve))
        for size, text in anchors(of_curve).items()
        if size not in done.get(name, ())
    }
    at = {i: (curve(configurations[i]), configurations[i].world_size) for i in positions}
    missing = {i: wanted[key] for i, key in at.items() if key in wanted}
    if missing or len(tested) >= LEAST_CONFIGURATIONS:
        return missing
    first = {(name, size) for name, of_curve in sizes.items() for size in anchors(of_curve)}
    why = f"only {counted(len(tested), 'configuration is', 'configurations are')} known"
    return {i: why for i, key in at.items() if key in first}


def curve(configuration: Configuration) -> tuple[object, ...]:
    """Return what configurations of one curve agree in; one machine exchanges by no strategy."""
    c = canonical(configuration)
    names = [n for n in NAMES if not (c.is_one_machine and n in ("strategy", "setup"))]
    return (c.is_one_machine, c.server_count, *(getattr(c, name) for name in names))


def anchors(world_sizes: Iterable[int]) -> dict[int, str]:
    """Return the world sizes to measure first, with their reasons."""
    ordered = sorted(set(world_sizes))
    middle = min(ordered, key=lambda n: (abs(math.log(n / _MIDDLE_WORLD_SIZE)), n))
    return {
        middle: "the middle of its curve",
        ordered[0]: "one machine" if ordered[0] == 1 else "the smallest world size of its curve",
        ordered[-1]: "one machine" if ordered[-1] == 1 else "the largest world size of its curve",
    }
