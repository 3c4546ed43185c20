"""Load and memory of NVIDIA GPUs, where their management library is present."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from worker_agent.metrics.contracts import Watched

logger = logging.getLogger(__name__)


def open_nvml() -> Any | None:
    """Return the initialised binding of NVML, or None: no binding, no driver or no GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml if pynvml.nvmlDeviceGetCount() > 0 else None
    except pynvml.NVMLError:
        return None


def devices(nvml: Any) -> list[tuple[int, Any]]:
    """Return number and handle of each GPU, without those that are there and broken."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append((index, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError as error:
            logger.warning("GPU %d is there and cannot be used: %s", index, error)
    return found


def create(watched: Watched) -> GpuMetric | None:
    nvml = open_nvml()
    return GpuMetric(nvml) if nvml is not None else None


class GpuMetric:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._devices = devices(nvml)

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
