"""Helpers of predictors: point estimates or the reason for none, and one thread for algebra."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration
from farm.recommend.features import KnownConditions
from farm.recommend.predictors.columns import FeatureColumns
from farm.recommend.predictors.contracts import PointEstimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Times = Callable[[FeatureColumns], "NDArray[np.float64]"]
# Two numbers of each configuration, such as its time and `PointEstimate.log_scale`.
Pairs = Callable[[FeatureColumns], "tuple[NDArray[np.float64], NDArray[np.float64]]"]


def estimates(
    known: KnownConditions, configurations: Sequence[Configuration], answers: Pairs
) -> list[PointEstimate]:
    """Ask for times and `PointEstimate.log_scale` of those of which something is known."""
    use_one_thread()
    why = [known.why_unknown(c) for c in configurations]
    known_ones = [c for c, reason in zip(configurations, why, strict=True) if reason is None]
    found = zip(*answers(FeatureColumns.of(known_ones)), strict=True) if known_ones else iter(())
    estimated = (PointEstimate(step_time_s=float(t), log_scale=float(s)) for t, s in found)
    return [
        next(estimated)
        if reason is None
        else PointEstimate(step_time_s=None, unknown_because=reason)
        for reason in why
    ]


def equally_doubtful(times_s: Times) -> Pairs:
    """Return the same times, all with the same log_scale of 1."""
    import numpy as np

    return lambda columns: (times_s(columns), np.ones(len(columns)))


def use_one_thread() -> None:
    """Keep the linear algebra of this process to one thread from now on.

    Its matrices are small, and threads spin while they wait for each other: on two cores that were
    not quite idle a calibrated fit of 400 measurements took 90 s with two threads and 5 s with one.
    NumPy and SciPy have a library each, and only those that are loaded already can be told.
    """
    _limit(is_scipy_loaded="scipy.linalg" in sys.modules)


@functools.cache  # finding the libraries takes about half a millisecond
def _limit(*, is_scipy_loaded: bool) -> None:
    import numpy as np  # noqa: F401 # so that its library is loaded
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
