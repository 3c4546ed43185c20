"""Load and memory of NVIDIA GPUs, where their management library is present."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from worker_agent.machine.gpus import handles, open_nvml
from worker_agent.metrics.contracts import Watched

logger = logging.getLogger(__name__)


def create(watched: Watched) -> GpuMetric | None:
    nvml = open_nvml() if watched.gpus else None
    return GpuMetric(nvml, watched.gpus) if nvml is not None else None


class GpuMetric:
    """Values are called by the place of their GPU among the agent's, such as gpu0_ratio."""

    def __init__(self, nvml: Any, gpus: Sequence[str]) -> None:
        self._nvml = nvml
        self._devices = handles(nvml, gpus)

    def read(self, tick: int) -> dict[str, float | int | None]:
        """Read every GPU; what one refuses, as a GPU in parts does its load, has no value."""
        values: dict[str, float | int | None] = {}
        for index, device in self._devices:
            load = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, device)
            memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, device)
            if load is not None:
                values[f"gpu{index}_ratio"] = load.gpu / 100
            if memory is not None:
                values[f"gpu{index}_memory_used_bytes"] = memory.used
        return values

    def _ask(self, question: Callable[[Any], Any], device: Any) -> Any | None:
        try:
            return question(device)
        except self._nvml.NVMLError as error:
            logger.debug("GPU was not read: %s", error)
            return None
