"""Coefficients of at least 0, also where the usual method takes long."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from farm.recommend.predictors.least_squares import nonnegative
from farm.recommend.predictors.physical import Physical
from tests.truths.synthetic_steps import configuration, measure

# Terms that are alike and of very different sizes, and times that make no sense together.
SYSTEM = np.array([[2.0, 400.0, 2.01], [1.0, 200.0, 1.0], [1e-8, 1.0, 3e-8], [0.1, 0.0, 0.3]])
TARGET = np.array([1.0, 1.2, 0.7, 0.1])
ODD_TIMES_S = {
    configuration(1, 32): (40.0, 19.0, 27.0),
    configuration(2, 32, network="infiniband", packet_loss_ratio=0.01): (19.0,),
    configuration(3, 32, network="infiniband", bandwidth_bytes_per_s=1e6, packet_loss_ratio=0.01): (
        47.0,
    ),
    configuration(3, 500, network="ethernet"): (0.5,),
    configuration(3, 4096, network="infiniband"): (6.0,),
}


def test_an_interior_method_answers_where_steps_run_out() -> None:
    exact = nonnegative(SYSTEM, TARGET)
    assert np.min(exact) >= 0
    assert nonnegative(SYSTEM, TARGET, most_steps=1) == pytest.approx(exact, rel=1e-3, abs=1e-6)


def test_times_that_take_many_steps_are_fitted() -> None:
    """They took more than three steps for each coefficient, which SciPy takes for a failure."""
    times_s = [(c, t) for c, several in ODD_TIMES_S.items() for t in several]
    left = itertools.chain.from_iterable(ODD_TIMES_S.values())
    observations = measure(
        [c for c, _ in times_s], time_s=lambda c: next(left), log_noise=lambda c: 0.0
    )
    [found] = Physical().fit(observations).predict([configuration(2, 16, network="ethernet")])
    assert found.step_time_s is not None
    assert found.step_time_s > 0
