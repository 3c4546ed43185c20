"""What is read of GPUs: by a stand-in for NVIDIA's library, in nvidia-ml-py's own types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from worker_agent.machine import hardware
from worker_agent.metrics import gpu
from worker_agent.metrics.contracts import Watched

WATCHED = Watched(cpus=(0,), interface="lo", pids=())


class Library:
    """NVML as the binding shows it, for three GPUs: a sound, a broken and one cut into parts."""

    NVMLError = pynvml.NVMLError

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if handle == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.c_nvmlUtilization_t(gpu=37, memory=12)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return pynvml.c_nvmlMemory_t(total=80 * 2**30, free=79 * 2**30, used=2**30 + handle)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"GPU of handle {handle}"


def test_what_a_gpu_refuses_is_missing_and_nothing_else() -> None:
    assert gpu.GpuMetric(Library()).read(0) == {
        "gpu0_ratio": 0.37,
        "gpu0_memory_used_bytes": 2**30,
        "gpu2_memory_used_bytes": 2**30 + 2,
    }


def test_a_broken_gpu_is_no_accelerator_and_keeps_no_agent_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "open_nvml", Library)
    assert hardware.read_accelerators() == ("GPU of handle 0", "GPU of handle 2")


def _no_library() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def _no_driver() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


@pytest.mark.parametrize("begin", [_no_library, _no_driver, lambda: None])
def test_without_a_gpu_there_is_no_metric(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", begin)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    assert gpu.create(WATCHED) is None
    assert hardware.read_accelerators() == ()
