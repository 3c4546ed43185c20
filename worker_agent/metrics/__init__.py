"""The groups of metrics that are sampled. To add one: write its file, and name it here.

Each entry makes the group for one rank, or returns None where this machine lacks it.
"""

from __future__ import annotations

from collections.abc import Callable

from worker_agent.metrics import (
    cpu,
    disk,
    frequency,
    gpu,
    memory,
    network,
    power,
    pressure,
    processes,
    swap,
    thermal,
    throttling,
)
from worker_agent.metrics.contracts import Metric, Watched

METRICS: tuple[Callable[[Watched], Metric | None], ...] = (
    cpu.create,
    processes.create,
    memory.create,
    network.create,
    disk.create,
    swap.create,
    throttling.create,
    thermal.create,
    frequency.create,
    pressure.create,
    power.create,
    gpu.create,
)
