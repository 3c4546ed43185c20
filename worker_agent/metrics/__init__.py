"""The groups of metrics that are sampled. To add one, write its file and add its line here.

Each entry creates the group for one rank, or returns None if this machine lacks it.
"""

from __future__ import annotations

from collections.abc import Callable

from worker_agent.metrics import (
    cpu,
    gpu,
    machine,
    network,
    processes,
)
from worker_agent.metrics.contracts import Metric, Watched

METRICS: tuple[Callable[[Watched], Metric | None], ...] = (
    cpu.create_load,
    processes.create,
    machine.create_memory,
    network.create,
    machine.create_disk,
    machine.create_swap,
    cpu.create_throttling,
    cpu.create_thermal,
    cpu.create_frequency,
    machine.create_pressure,
    machine.create_power,
    gpu.create,
)
