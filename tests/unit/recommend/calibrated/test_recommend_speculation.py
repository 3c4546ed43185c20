"""Which predictions are guesses, and why they are said to be."""

from __future__ import annotations

import math

import pytest

from farm.recommend.calibrated.step_time_model import CalibratedModel, fit_step_time_model
from farm.recommend.configuration import Configuration
from farm.recommend.setup import Setup
from tests.truths.synthetic_steps import Lawful, configuration, grid, measure


@pytest.fixture(scope="module")
def model() -> CalibratedModel:
    """A ring measured on 1 to 4 machines, another set-up of it on 1 and 2 alone."""
    observations = [
        *grid(),
        *grid(world_sizes=(8, 16)),
        *grid(world_sizes=(1, 2), setup=Setup.read("packed")),
    ]
    return fit_step_time_model(measure(observations), predictor=Lawful())


def why(model: CalibratedModel, requested: Configuration) -> str | None:
    [answer] = model.predict([requested])
    return answer.speculative_because


@pytest.mark.parametrize(
    "requested",
    [
        configuration(4, 64),  # measured
        configuration(4, 96),
        configuration(18, 64),
        configuration(4, 1200),
        configuration(4, 64, 0.07),
        configuration(2, 96, setup=Setup.read("packed")),
    ],
)
def test_what_lies_among_or_next_to_its_own_curve_is_no_guess(
    model: CalibratedModel, requested: Configuration
) -> None:
    assert why(model, requested) is None


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (configuration(32, 64), "world size 32: beyond the largest"),
        (configuration(64, 64), "world size 64: beyond the largest"),
        (configuration(4, 16384), "batch size 16384: beyond the largest"),
        (configuration(4, 8), "batch size 8: beyond the smallest"),
        (configuration(4, 64, 1.0), "delay 1.00 s: beyond the largest"),
        # Others were measured there, which says nothing of this one.
        (configuration(16, 64, setup=Setup.read("packed")), "measured like this, 2"),
    ],
)
def test_what_lies_beyond_its_own_curve_is_a_guess(
    model: CalibratedModel, requested: Configuration, reason: str
) -> None:
    found = why(model, requested)
    assert found is not None
    assert reason in found


def test_a_curve_of_one_value_shows_no_trend() -> None:
    model = fit_step_time_model(measure(grid(batches=(64,))), predictor=Lawful())
    assert why(model, configuration(2, 128)) == "batch size 128: measured like this at 64 only"


def test_one_machine_is_a_guess_where_only_gangs_were_measured() -> None:
    model = fit_step_time_model(measure(grid(world_sizes=(2, 3, 4))), predictor=Lawful())
    assert why(model, configuration(1, 64)) == "no single machine was measured"


def test_doublings_are_counted_from_the_nearest_measured_value(model: CalibratedModel) -> None:
    [beyond] = model.calibration.space.beyond(configuration(16, 64, setup=Setup.read("packed")))
    assert beyond.edge == 2
    assert beyond.doublings == pytest.approx(3)
    [beyond] = model.calibration.space.beyond(configuration(4, 64, 0.18))
    assert beyond.edge == 0.06
    assert beyond.doublings == pytest.approx(math.log2(3))
