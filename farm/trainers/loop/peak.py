"""Measures the peak compute rate of a rank: the largest number of FLOP per second in its framework.

It is the rate of a product of two square matrices, on the rank's own threads or device and in the
job's precision. A data sheet says what a kind of processor can do, not what this rank's cores do
with this framework.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

from farm.trainers.contracts import MatrixProduct

# Of the matrices. A small product is over before all cores or units are busy, a large one takes
# memory, and time in which others may take the cores away: so they grow until one takes a while.
SIDES = (256, 512, 1024, 2048, 4096, 8192)
_WHILE_S = 1e-3
# What it costs to start a run and to wait for its end is far below this.
_RUN_S = 5e-4
_LEAST_RUNS = 10
_SIDE_S = 0.05  # for the runs of one size
_LEAST_TIME_S = 1e-6  # of a product, far below any of these


def peak_flop_per_s(
    product_of: Callable[[int], MatrixProduct], *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the best rate of many runs of products of each size, in FLOP/s.

    `product_of`: the product of two matrices of that many rows and columns. It takes 0.05 s for
    each size, which are two where a core computes 100 GFLOP/s, and ten runs at least.
    """
    best = 0.0
    for side in SIDES:
        product = product_of(side)
        product.run(1)  # what the first one alone sets up
        one_s = _shortest_s(product, clock)
        best = max(best, product.flop / one_s)
        if one_s >= _WHILE_S:
            break
    return best


def _shortest_s(product: MatrixProduct, clock: Callable[[], float]) -> float:
    """Return the time of one product in the run in which it was shortest."""
    shortest_s, end_s = math.inf, clock() + _SIDE_S
    for run_count in itertools.count():
        if run_count >= _LEAST_RUNS and clock() >= end_s:
            break
        count = math.ceil(_RUN_S / shortest_s) or 1
        begun_s = clock()
        product.run(count)
        shortest_s = min(shortest_s, max(_LEAST_TIME_S, (clock() - begun_s) / count))
    return shortest_s
