"""What a predictor does to the process it runs in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKED_FOR = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
SHOW_THREADS = """
from threadpoolctl import threadpool_info
print(*(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"))
"""
FIT = """
from farm.recommend.predictors.ensemble import Ensemble
from tests.truths.synthetic_steps import grid, measure
Ensemble().fit(measure(grid(batches=(64, 256), delays_s=(0.0,))))
"""
# As a command does that finds its model on disk, and needs NumPy alone.
ANSWER = """
import numpy
from farm.recommend.features import KnownConditions
from farm.recommend.predictors.estimates import estimates
estimates(KnownConditions.of([]), [], lambda columns: (numpy.ones(0), numpy.ones(0)))
"""


@pytest.mark.parametrize(
    ("program", "libraries"), [(FIT, 2), (ANSWER, 1)], ids=["a fit", "an answer"]
)
def test_linear_algebra_uses_one_thread(program: str, libraries: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program + SHOW_THREADS],
        env={**os.environ, **ASKED_FOR},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["1"] * libraries
