"""How many threads linear algebra may use: one."""

from __future__ import annotations

import functools
import sys


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
