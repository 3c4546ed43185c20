"""What is read of GPUs, of a library that is built for the test and stands in for NVIDIA's."""

from __future__ import annotations

import pytest

from tests.fakes.nvml import FakeNvml, uuid_of
from worker_agent.metrics import gpu
from worker_agent.metrics.contracts import Metric, Watched


def metric_of(*gpus: int, pids: tuple[int, ...] = ()) -> Metric | None:
    uuids = tuple(uuid_of(one) for one in gpus)
    return gpu.create(Watched(cpus=(0,), interface="lo", pids=pids, gpus=uuids))


def read(*gpus: int) -> dict[str, float | int | None]:
    metric = metric_of(*gpus)
    assert metric is not None
    return dict(metric.read(0))


def test_what_a_gpu_refuses_is_missing_and_nothing_else(fake_nvml: FakeNvml) -> None:
    for place in (0, 1):
        fake_nvml.set("gpu_percent", 37, place=place)
        fake_nvml.set("used_bytes", 2**30 + place, place=place)
    fake_nvml.set("is_in_parts", 1, place=1)
    assert read(0, 1) == {
        "gpu0_ratio": 0.37,
        "gpu0_memory_used_bytes": 2**30,
        "gpu1_memory_used_bytes": 2**30 + 1,
    }


def test_values_are_called_by_the_place_among_the_agents_gpus(fake_nvml: FakeNvml) -> None:
    fake_nvml.set("used_bytes", 5, place=1)
    assert read(1)["gpu0_memory_used_bytes"] == 5


@pytest.mark.parametrize("gpus", [(), (0,)])
def test_without_a_gpu_there_is_no_metric(fake_nvml: FakeNvml, gpus: tuple[int, ...]) -> None:
    fake_nvml.set("gpu_count", 0 if gpus else 1)
    assert metric_of(*gpus) is None
