"""What is read of GPUs, of a library that is built for the test and stands in for NVIDIA's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from farm.sampling.names import GPU_POWER_EXTRA
from tests.fakes.nvml import FakeNvml, uuid_of
from worker_agent.metrics import gpu
from worker_agent.metrics.contracts import Metric, Watched

# What a driver tells that knows no fields and no processes.
OLD = {
    "gpu0_ratio": 0.37,
    "gpu0_memory_used_bytes": 2**30,
    "gpu0_power_w": 412.5,
    "gpu0_sm_clock_hz": 1_980_000_000,
    "gpu0_memory_clock_hz": 2_619_000_000,
    "gpu0_temperature_celsius": 61,
    "gpu0_power_capped_ratio": 1.0,
    "gpu0_heat_slowdown_ratio": 0.0,
    "gpu0_hardware_slowdown_ratio": 0.0,
}
COUNTERS = (
    *(pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
    *(pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    *(pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
)


def metric_of(*gpus: int, pids: tuple[int, ...] = ()) -> Metric:
    uuids = tuple(uuid_of(one) for one in gpus)
    metric = gpu.create(Watched(cpus=(0,), interface="lo", pids=pids, gpus=uuids))
    assert metric is not None
    return metric


def read(metric: Metric, tick: int = 0) -> dict[str, float | int | None]:
    return dict(metric.read(tick))


def train_on(fake: FakeNvml, place: int) -> None:
    """Let a GPU be as one at its power cap is."""
    for name, value in {
        **{"gpu_percent": 37, "used_bytes": 2**30, "power_mw": 412_500, "sm_mhz": 1980},
        **{"memory_mhz": 2619, "celsius": 61},
        "reasons": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    }.items():
        fake.set(name, value, place=place)


@pytest.fixture
def first_pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ids of processes mean what they mean to the driver, also where the test is contained."""
    (tmp_path / "pid").symlink_to("pid:[4026531836]")
    monkeypatch.setattr(gpu, "PID_NAMESPACE", tmp_path / "pid")


@pytest.mark.usefixtures("first_pids")
def test_everything_that_a_gpu_tells_is_read_in_base_units(fake_nvml: FakeNvml) -> None:
    train_on(fake_nvml, 0)
    for number, field in enumerate(COUNTERS):
        fake_nvml.set_field(0, field, 1000 * number)
    metric = metric_of(0)
    assert read(metric) == OLD | {"gpu0_foreign_process_count": 0}
    for number, field in enumerate(COUNTERS):
        fake_nvml.set_field(0, field, 1000 * number + 500 + number)
    assert read(metric, 1) == pytest.approx(
        OLD
        | {
            "gpu0_foreign_process_count": 0,
            "gpu0_energy_j_per_s": 0.5,
            "gpu0_ecc_corrected_errors_per_s": 501,
            "gpu0_ecc_uncorrected_errors_per_s": 502,
            "gpu0_pcie_rx_bytes_per_s": 503,
            "gpu0_pcie_tx_bytes_per_s": 504,
            "gpu0_nvlink_rx_bytes_per_s": 505 * 1024,
            "gpu0_nvlink_tx_bytes_per_s": 506 * 1024,
        }
    )


@pytest.mark.parametrize("counting", [(0, 1), (0,)])
@pytest.mark.parametrize("has_machine", [True, False])
def test_the_power_of_all_gpus_is_told_where_they_are_the_agents_and_all_count(
    fake_nvml: FakeNvml, counting: tuple[int, ...], has_machine: bool
) -> None:
    gpus = tuple(uuid_of(place) for place in (0, 1))
    cpus = tuple(range(os.cpu_count() or 1)) if has_machine else ()
    metric = gpu.create(Watched(cpus=cpus, interface="lo", pids=(), gpus=gpus))
    assert metric is not None
    energy = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
    for tick in (0, 1):
        for place in counting:
            fake_nvml.set_field(place, energy, 100_000 * tick * (place + 1))
        found = read(metric, tick)
        is_known = tick == 1 and has_machine and len(counting) == 2
        assert found.get(GPU_POWER_EXTRA) == (300.0 if is_known else None)


@pytest.mark.usefixtures("first_pids")
def test_a_driver_that_lacks_functions_tells_the_rest(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, is_old=True)
    try:
        fake.use()
        fake.set("gpu_count", 1)
        train_on(fake, 0)
        metric = metric_of(0)
        assert [read(metric, tick) for tick in (0, 1)] == [OLD, OLD]
    finally:
        fake.leave()


def test_a_binding_that_lacks_names_tells_the_rest(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_on(fake_nvml, 0)
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
    monkeypatch.delattr(pynvml, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES")
    fake_nvml.set_field(0, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0)
    metric = metric_of(0)
    read(metric)
    assert OLD.items() <= (found := read(metric, 1)).items()
    assert found["gpu0_pcie_rx_bytes_per_s"] == 0
    assert "gpu0_pcie_tx_bytes_per_s" not in found


@pytest.mark.parametrize(
    ("reason", "lowered"),
    [
        ("GpuIdle", []),
        ("ApplicationsClocksSetting", []),
        ("SwPowerCap", ["power_capped"]),
        ("SwThermalSlowdown", ["heat_slowdown"]),
        ("HwThermalSlowdown", ["heat_slowdown"]),
        ("HwSlowdown", ["hardware_slowdown"]),
        ("HwPowerBrakeSlowdown", ["hardware_slowdown"]),
    ],
)
def test_why_clocks_are_lowered_is_told_apart(
    fake_nvml: FakeNvml, reason: str, lowered: list[str]
) -> None:
    fake_nvml.set("reasons", getattr(pynvml, f"nvmlClocksEventReason{reason}"))
    names = ("power_capped", "heat_slowdown", "hardware_slowdown")
    found = read(metric_of(0))
    assert [name for name in names if found[f"gpu0_{name}_ratio"]] == lowered


@pytest.mark.usefixtures("first_pids")
def test_a_foreign_process_is_one_that_no_trainer_started(fake_nvml: FakeNvml) -> None:
    own = os.getpid()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        fake_nvml.run(0, own, child.pid, ended.pid)
        fake_nvml.run(1, os.getppid(), child.pid)
        of_all = read(metric_of(0, 1, pids=(own,)))
        assert of_all["gpu0_foreign_process_count"] == 0
        assert of_all["gpu1_foreign_process_count"] == 1
        of_none = read(metric_of(0, 1))
        assert of_none["gpu0_foreign_process_count"] == 2
        child.communicate(b"\n")


def test_in_a_container_nobody_knows_whose_the_processes_are(
    fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pid").symlink_to("pid:[4026532189]")
    monkeypatch.setattr(gpu, "PID_NAMESPACE", tmp_path / "pid")
    fake_nvml.run(0, os.getppid())
    assert "gpu0_foreign_process_count" not in read(metric_of(0))


def test_a_gpu_in_parts_has_no_load_and_everything_else(fake_nvml: FakeNvml) -> None:
    train_on(fake_nvml, 1)
    fake_nvml.set("is_in_parts", 1, place=1)
    found = read(metric_of(0, 1))
    assert found["gpu0_ratio"] == 0
    assert "gpu1_ratio" not in found
    assert found["gpu1_memory_used_bytes"] == 2**30


def test_values_are_called_by_the_place_among_the_agents_gpus(fake_nvml: FakeNvml) -> None:
    fake_nvml.set("used_bytes", 5, place=1)
    assert read(metric_of(1))["gpu0_memory_used_bytes"] == 5


@pytest.mark.parametrize("gpus", [(), (uuid_of(0),)])
def test_without_a_gpu_there_is_no_metric(fake_nvml: FakeNvml, gpus: tuple[str, ...]) -> None:
    fake_nvml.set("gpu_count", 0 if gpus else 1)
    assert gpu.create(Watched(cpus=(0,), interface="lo", pids=(), gpus=gpus)) is None
