"""Load and memory of NVIDIA GPUs, where their management library is present."""

from __future__ import annotations

import logging
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


def create(watched: Watched) -> GpuMetric | None:
    nvml = open_nvml()
    return GpuMetric(nvml) if nvml is not None else None


class GpuMetric:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def read(self, tick: int) -> dict[str, float | int | None]:
        """Read every GPU; one that refuses has no values at this tick."""
        values: dict[str, float | int | None] = {}
        for index, device in enumerate(self._devices):
            try:
                load = self._nvml.nvmlDeviceGetUtilizationRates(device)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
            except self._nvml.NVMLError as error:
                logger.debug("GPU %d was not read: %s", index, error)
                continue
            values[f"gpu{index}_ratio"] = load.gpu / 100
            values[f"gpu{index}_memory_used_bytes"] = memory.used
        return values
