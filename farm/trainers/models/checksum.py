"""A checksum of a model's weights, to compare ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from farm.trainers.model_files.model_check import numpy_of

_PART = 1 << 16  # numbers at a time, since in double precision all may be much
# By place, so that the same numbers elsewhere have another sum.
_FACTORS = np.random.default_rng(0).uniform(0.5, 1.5, _PART)


def checksum_of(variables: Iterable[Any]) -> float:
    """Return the checksum of a Keras model's variables of floats.

    The others are counters and generators of random numbers.
    """
    import keras

    floats = [v for v in variables if keras.backend.is_float_dtype(v.dtype)]
    return checksum(numpy_of(keras.ops.convert_to_tensor(v.value)) for v in floats)


def checksum(arrays: Iterable[Any]) -> float:
    """Return a sum of positive numbers, to be compared to a tolerance.

    Other machines may draw weights that differ in their last digit.
    """
    total = 0.0
    for number, array in enumerate(arrays):
        flat = np.asarray(array, np.float32).reshape(-1)
        for first in range(0, len(flat), _PART):
            part = 1.0 + flat[first : first + _PART].astype(np.float64)
            place = 1.0 + 0.1 * ((number + first // _PART) % 7)
            total += place * float(_FACTORS[: len(part)] @ (part * part))
    return total
