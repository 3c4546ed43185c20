"""What is fixed, so that configurations and frameworks are compared at the same setting.

Recorded with every result. The optimizer is stochastic gradient descent with momentum.
"""

from __future__ import annotations

LEARNING_RATE = 0.02
MOMENTUM = 0.9
EVALUATION_BATCH_SIZE = 500
