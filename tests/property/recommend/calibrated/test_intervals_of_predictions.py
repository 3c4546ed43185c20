"""Prediction intervals cover what they promise, on measurements whose truth is known."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.recommend.calibrated.intervals import quantile
from farm.recommend.calibrated.step_time_model import fit_step_time_model
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.contracts import Basis, Prediction
from farm.recommend.evaluating.scores import HeldOutAnswer, interval_score
from tests.truths.synthetic_steps import Lawful, configuration, grid, law, measure


def uneven(c: Configuration) -> float:
    """Gangs of four vary twenty times as much as the others."""
    return 0.2 if c.world_size == 4 else 0.01


def scattered(c: Configuration) -> float:
    """One in five varies ten times as much, wherever it lies."""
    return 0.2 if random.Random(repr(c)).random() < 0.2 else 0.02


NOISES: dict[str, Callable[[Configuration], float]] = {
    "even": lambda c: 0.05,
    "uneven": uneven,
    "scattered": scattered,
}


@pytest.fixture(scope="module", params=NOISES)
def answers(request: pytest.FixtureRequest) -> tuple[str, dict[str, list[HeldOutAnswer]]]:
    """Leave a random third out and predict it, with local and with constant intervals."""
    found: dict[str, list[HeldOutAnswer]] = {"local": [], "constant": []}
    for seed in range(20):
        observations = measure(grid(), seed=seed, log_noise=NOISES[request.param])
        random.Random(seed).shuffle(observations)
        count = len(observations) // 3
        requested = [o.configuration for o in observations[:count]]
        model = fit_step_time_model(observations[count:], predictor=Lawful(), requested=requested)
        for name, outcomes in found.items():
            predictions = model.predict(requested, is_constant=name == "constant")
            outcomes += [
                HeldOutAnswer(observation=o, prediction=p)
                for o, p in zip(observations, predictions, strict=False)
            ]
    return request.param, found


# 20 data sets with 21 questions each know a coverage of 0.8 to within 0.04, twice over.
@pytest.mark.parametrize("aim_ratio", [0.8, 0.9])
def test_intervals_cover_what_they_promise_and_are_short_where_they_can_be(
    answers: tuple[str, dict[str, list[HeldOutAnswer]]], aim_ratio: float
) -> None:
    noise, outcomes = answers
    local, constant = (
        interval_score(outcomes[name], aim_ratio=aim_ratio) for name in ("local", "constant")
    )
    assert local.coverage_ratio == pytest.approx(aim_ratio, abs=0.05)
    assert constant.coverage_ratio == pytest.approx(aim_ratio, abs=0.05)
    assert local.log_score is not None
    assert constant.log_score is not None
    # Where nothing tells hard places from easy ones, looking for them may cost a little.
    assert local.log_score < (0.9 if noise == "uneven" else 1.1) * constant.log_score


def covered(prediction: Prediction, noise: float, *, of: Configuration) -> float:
    """Return how likely one more measurement falls into the 90 % interval."""
    assert prediction.low_s is not None
    assert prediction.high_s is not None
    low, high = (math.log(end_s / law(of)) for end_s in (prediction.low_s, prediction.high_s))
    error = statistics.NormalDist(0, noise)
    return error.cdf(high) - error.cdf(low)


def numbered(*observations: Observation) -> list[Observation]:
    return [dataclasses.replace(o, measurement_id=i) for i, o in enumerate(observations, start=1)]


def noisier(c: Configuration) -> bool:
    """Another strategy, conditions that nothing else has, and the largest gang."""
    return c.strategy == "ps" or c.jitter_s > 0 or c.world_size == 8


NOISIER: dict[str, list[Configuration]] = {
    "strategy": grid(delays_s=(0.0,), strategy="ps"),
    "jitter": grid(delays_s=(0.02,), jitter_s=0.01),
    "largest gang": grid(world_sizes=(8,), delays_s=(0.0,)),
}


@pytest.mark.parametrize("kind", NOISIER)
def test_what_was_never_repeated_is_no_surer_than_its_own_errors(kind: str) -> None:
    """However quiet the repetitions of others are."""
    quiet = grid(world_sizes=(1, 2, 4), delays_s=(0.0, 0.02))
    once = [c for c in NOISIER[kind] if noisier(c) and not c.is_one_machine]
    found = []
    for seed in range(6):
        observations = numbered(
            *measure(quiet, seed=seed, repetitions=3, log_noise=lambda c: 0.01),
            *measure(once, seed=seed, log_noise=lambda c: 0.25),
        )
        model = fit_step_time_model(observations, predictor=Lawful())
        for c, prediction in zip(once, model.predict(once), strict=True):
            assert prediction.basis is Basis.MEASURED
            found.append(covered(prediction, 0.25, of=c))
    assert statistics.fmean(found) > 0.8


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_where_nothing_was_repeated_the_next_run_is_covered_around_a_noisy_one(
    noise: float,
) -> None:
    """By a predictor that has to learn the law from these runs."""
    requested = grid(batches=(64, 256, 512, 1024), delays_s=(0.0,), world_sizes=(1, 2, 3, 4, 6, 8))
    found80, found = [], []
    for seed in range(16):
        observations = measure(requested, seed=seed, log_noise=lambda c: noise)
        for c, prediction in zip(
            requested,
            fit_step_time_model(observations, requested=requested).predict(requested),
            strict=True,
        ):
            assert prediction.basis is Basis.MEASURED
            found.append(covered(prediction, noise, of=c))
            inner = dataclasses.replace(
                prediction, low_s=prediction.low80_s, high_s=prediction.high80_s
            )
            found80.append(covered(inner, noise, of=c))
    assert statistics.fmean(found) == pytest.approx(0.92, abs=0.04)
    assert statistics.fmean(found80) == pytest.approx(0.85, abs=0.05)


def test_what_was_repeated_like_this_stays_sure_beside_noisier_ones() -> None:
    """Also where its own repetitions are few: others of its kind are enough."""
    few, noisy = [configuration(2, 96), configuration(2, 192)], grid(delays_s=(0.0,), strategy="ps")
    observations = numbered(
        *measure(grid(delays_s=(0.0,)), repetitions=3, log_noise=lambda c: 0.01),
        *measure(few, log_noise=lambda c: 0.01),
        *measure([c for c in noisy if noisier(c)], repetitions=3, log_noise=lambda c: 0.25),
    )
    model = fit_step_time_model(observations, predictor=Lawful())
    for prediction in model.predict(few):
        assert prediction.low_s is not None
        assert prediction.high_s is not None
        assert prediction.high_s / prediction.low_s < 1.1


@given(
    values=st.lists(st.floats(0, 1e6), min_size=10, max_size=60, unique=True),
    aim_ratio=st.floats(0.05, 0.9),
)
def test_as_many_of_exchangeable_errors_as_promised_lie_within_what_the_others_say(
    values: list[float], aim_ratio: float
) -> None:
    """Whichever of them is the new one: that is all that conformal prediction rests on."""
    within = [
        value
        <= quantile(np.array(values[:i] + values[i + 1 :]), np.ones(len(values) - 1), aim_ratio)
        for i, value in enumerate(values)
    ]
    assert aim_ratio - 1e-9 <= sum(within) / len(values) < aim_ratio + 1 / len(values) + 1e-9


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3))
def test_the_unit_of_the_times_does_not_matter(seed: int, factor: float) -> None:
    observations = measure(grid(batches=(64, 256), delays_s=(0.0, 0.02)), seed=seed)
    scaled = [dataclasses.replace(o, step_time_s=o.step_time_s * factor) for o in observations]
    requested = grid(batches=(64, 128), delays_s=(0.01, 0.02))
    plain, other = (
        fit_step_time_model(o, predictor=Lawful()).predict(requested)
        for o in (observations, scaled)
    )
    for a, b in zip(plain, other, strict=True):
        assert a.basis is b.basis
        for name in ("step_time_s", "low_s", "high_s", "low80_s", "high80_s"):
            assert getattr(b, name) == pytest.approx(getattr(a, name) * factor)


@settings(max_examples=20)
@given(
    observed=st.lists(
        st.tuples(st.sampled_from(grid()), st.floats(1e-4, 1e3)), min_size=1, max_size=25
    )
)
def test_an_interval_is_positive_and_the_80_percent_one_lies_within(
    observed: list[tuple[Configuration, float]],
) -> None:
    observations = [
        Observation(measurement_id=i, configuration=c, step_time_s=time_s)
        for i, (c, time_s) in enumerate(observed)
    ]
    model = fit_step_time_model(observations, predictor=Lawful())
    for answer in model.predict(grid(batches=(64, 96))):
        values = (answer.low_s, answer.low80_s, answer.step_time_s, answer.high80_s, answer.high_s)
        known = [value for value in values if value is not None]
        assert len(known) == 5
        assert known[0] > 0
        assert known == sorted(known)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_the_measurements_does_not_matter(seed: int) -> None:
    observations = measure(grid(batches=(64, 256), delays_s=(0.0, 0.02)), log_noise=uneven)
    shuffled = random.Random(seed).sample(observations, len(observations))
    requested = grid(batches=(64, 128), delays_s=(0.01, 0.02))
    widths = [
        statistics.fmean(
            p.high_s / p.low_s for p in model.predict(requested) if p.high_s and p.low_s
        )
        for model in (fit_step_time_model(o, predictor=Lawful()) for o in (observations, shuffled))
    ]
    assert widths[0] == pytest.approx(widths[1])
