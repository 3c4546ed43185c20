"""Hyperparameters that are the same for all configurations and frameworks.

Recorded with every result. The optimizer is stochastic gradient descent with momentum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farm.configuration.axes import DEFAULT_LEARNING_RATE
from farm.configuration.spec import OperatorPlacement

LEARNING_RATE = DEFAULT_LEARNING_RATE
MOMENTUM = 0.9
EVALUATION_BATCH_SIZE = 500
# Of sequences, fewer: each token has logits for the whole vocabulary.
EVALUATION_TOKEN_COUNT = 1024


def evaluation_parts(label_shape: Sequence[int]) -> Iterator[slice]:
    """Yield the parts in which a test split is evaluated; label_shape: (n,) or (n, length)."""
    count, *rest = label_shape
    size = max(1, EVALUATION_TOKEN_COUNT // rest[0]) if rest else EVALUATION_BATCH_SIZE
    for first in range(0, count, size):
        yield slice(first, first + size)


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
