"""Physics that holds whatever was measured."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import canonical
from farm.recommend.predictors.contracts import Predictor
from farm.recommend.predictors.ensemble import Ensemble
from farm.recommend.predictors.physical import Physical
from tests.truths.synthetic_steps import configuration

NETWORKS = ("ethernet", "infiniband")
BANDWIDTHS = st.sampled_from([None, 1e6, 1e8])
# Loss and jitter seldom vary together, and their grid would make these tests slow.
ROUGHNESS = st.sampled_from([{}, {"packet_loss_ratio": 0.01}, {"jitter_s": 0.002}])
CONFIGURATIONS = st.builds(
    lambda n, b, d, w, rough, network: canonical(
        configuration(n, b, d, network=network, bandwidth_bytes_per_s=w, **rough)
    ),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([32, 64, 500, 4096]),
    st.sampled_from([0.0, 0.005, 0.08]),
    BANDWIDTHS,
    ROUGHNESS,
    st.sampled_from(NETWORKS),
)
# Any times at all, however little sense they make together.
OBSERVATIONS = st.lists(
    st.builds(
        lambda c, t: Observation(measurement_id=1, configuration=c, step_time_s=t),
        CONFIGURATIONS,
        st.floats(1e-3, 1e3),
    ),
    min_size=4,
    max_size=16,
)
ASKED = st.builds(
    lambda n, b, d, w, p, j, network: configuration(
        n, b, d, network=network, bandwidth_bytes_per_s=w, packet_loss_ratio=p, jitter_s=j
    ),
    st.sampled_from([2, 3, 5, 8, 16]),
    st.integers(16, 20_000),
    st.floats(0, 0.3),
    st.none() | st.floats(1e5, 1e9),
    st.floats(0, 0.1),
    st.floats(0, 0.01),
    st.sampled_from(NETWORKS),
)
physical = pytest.mark.parametrize("predictor", [Physical(), Ensemble()], ids=lambda p: p.name)
AXES = st.sampled_from(["batch", "delay", "bandwidth", "loss", "jitter"])
fits = settings(max_examples=25)
fits_twice = settings(max_examples=8)


def slower(c: Configuration, axis: str, factor: float) -> Configuration:
    """The same with more of what never makes a step faster."""
    match axis:
        case "batch":
            return dataclasses.replace(c, global_batch_size=round(c.global_batch_size * factor))
        case "delay":
            return dataclasses.replace(c, one_way_delay_s=(c.one_way_delay_s + 1e-3) * factor)
        case "bandwidth":
            w = c.bandwidth_bytes_per_s or 1e12
            return dataclasses.replace(c, bandwidth_bytes_per_s=w / factor)
        case "jitter":
            return dataclasses.replace(c, jitter_s=(c.jitter_s + 1e-4) * factor)
        case _:
            return dataclasses.replace(c, packet_loss_ratio=(c.packet_loss_ratio + 1e-3) * factor)


@physical
@given(OBSERVATIONS, ASKED, AXES, st.data())
@fits
def test_never_faster_with_more_of_what_slows_a_step_down(
    predictor: Predictor,
    observations: list[Observation],
    requested: Configuration,
    axis: str,
    data: st.DataObject,
) -> None:
    factors = sorted(data.draw(st.lists(st.floats(1, 30), min_size=2, max_size=6)))
    found = predictor.fit(observations).predict([slower(requested, axis, f) for f in factors])
    times_s = [estimate.step_time_s for estimate in found if estimate.step_time_s is not None]
    assert all(time_s > 0 for time_s in times_s)
    for shorter_s, longer_s in itertools.pairwise(times_s):
        assert longer_s >= shorter_s * (1 - 1e-9)


@physical
@given(OBSERVATIONS, st.lists(ASKED, min_size=1, max_size=3), st.floats(1e-3, 1e3))
@fits_twice
def test_scaling_all_times_scales_all_answers(
    predictor: Predictor,
    observations: list[Observation],
    requested: list[Configuration],
    factor: float,
) -> None:
    scaled = [dataclasses.replace(o, step_time_s=o.step_time_s * factor) for o in observations]
    plain, multiplied = (predictor.fit(o).predict(requested) for o in (observations, scaled))
    for one, other in zip(plain, multiplied, strict=True):
        if one.step_time_s is None:
            assert other.step_time_s is None
        else:
            assert other.step_time_s == pytest.approx(one.step_time_s * factor, rel=1e-3)


@physical
@given(OBSERVATIONS, st.lists(ASKED, min_size=1, max_size=3), st.randoms())
@fits_twice
def test_the_order_of_the_measurements_does_not_matter(
    predictor: Predictor,
    observations: list[Observation],
    requested: list[Configuration],
    draw: random.Random,
) -> None:
    shuffled = list(observations)
    draw.shuffle(shuffled)
    found, again = (predictor.fit(o).predict(requested) for o in (observations, shuffled))
    for one, other in zip(found, again, strict=True):
        assert other.unknown_because == one.unknown_because
        if one.step_time_s is not None:
            assert other.step_time_s == pytest.approx(one.step_time_s, rel=1e-3)


@physical
@given(OBSERVATIONS, st.lists(ASKED, min_size=1, max_size=3))
@fits_twice
def test_the_units_of_delay_and_bandwidth_do_not_matter(
    predictor: Predictor, observations: list[Observation], requested: list[Configuration]
) -> None:
    def in_other_units(c: Configuration) -> Configuration:
        bits = None if c.bandwidth_bytes_per_s is None else c.bandwidth_bytes_per_s * 8
        delay = c.one_way_delay_s * 1000
        return dataclasses.replace(c, one_way_delay_s=delay, bandwidth_bytes_per_s=bits)

    others = [
        dataclasses.replace(o, configuration=in_other_units(o.configuration)) for o in observations
    ]
    found = predictor.fit(observations).predict(requested)
    again = predictor.fit(others).predict([in_other_units(c) for c in requested])
    for one, other in zip(found, again, strict=True):
        if one.step_time_s is None:
            assert other.step_time_s is None
        else:
            assert other.step_time_s == pytest.approx(one.step_time_s, rel=1e-3)
