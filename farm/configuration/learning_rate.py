"""Scales a learning rate with the global batch size. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from farm.configuration.spec import LearningRateScaling

# Goyal et al. 2017 call it the reference minibatch: at this size the rate is the one asked for.
REFERENCE_BATCH_SIZE = 32
MAX_LEARNING_RATE = 1000.0


def scaled_learning_rate(
    rate: float, scaling: LearningRateScaling, *, global_batch_size: int
) -> float:
    """Return the rate at a batch of k times REFERENCE_BATCH_SIZE, for k below 1, too.

    `LINEAR`: k * rate, so that a step with the gradient's mean over k batches moves the weights as
    far as k steps (Goyal et al. 2017, section 2.1). `SQRT`: sqrt(k) * rate, so that the noise of a
    step has the same variance (Krizhevsky 2014, section 5).
    """
    k = global_batch_size / REFERENCE_BATCH_SIZE
    factors = {LearningRateScaling.LINEAR: k, LearningRateScaling.SQRT: math.sqrt(k)}
    return rate * factors.get(scaling, 1.0)


def learning_rate_of(values: Mapping[str, Any]) -> float:
    """Return the rate that the optimizer is given. `values`: of every axis, by its field."""
    return scaled_learning_rate(
        values["learning_rate"],
        LearningRateScaling(values["lr_scaling"]),
        global_batch_size=values["global_batch_size"],
    )
