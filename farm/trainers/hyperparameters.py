"""What is fixed, so that configurations and frameworks are compared at the same setting.

Recorded with every result. The optimizer is stochastic gradient descent with momentum.
"""

from __future__ import annotations

from farm.configuration.axes import DEFAULT_LEARNING_RATE
from farm.configuration.spec import OperatorPlacement

LEARNING_RATE = DEFAULT_LEARNING_RATE
MOMENTUM = 0.9
EVALUATION_BATCH_SIZE = 500


def fixed_settings(
    *,
    intra_op_threads: int,
    inter_op_threads: int,
    placement: OperatorPlacement,
    is_on_gpu: bool,
) -> dict[str, object]:
    """Return what a result says of them: optimizer, learning rate, threads, placement, device."""
    return {
        "optimizer": "sgd",
        "learning_rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "intra_op_threads": intra_op_threads,
        "inter_op_threads": inter_op_threads,
        "placement": placement.value,
        "device": "gpu" if is_on_gpu else "cpu",
    }
