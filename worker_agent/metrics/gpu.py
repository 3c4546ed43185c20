"""Samples NVIDIA GPUs through NVML: load, memory, power, clocks, heat, traffic, errors, processes.

A metric that the GPU, its driver or the binding does not report has no value.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from farm.sampling.names import (
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    FOREIGN_PROCESSES,
    GPU_POWER_EXTRA,
    HARDWARE_SLOWDOWN,
    HEAT_SLOWDOWN,
    MOST_GPUS,
    POWER_CAPPED,
    gpu_extra,
)
from farm.sampling.ticks import Rates
from worker_agent.machine.gpus import handles, open_nvml
from worker_agent.metrics.contracts import Watched

logger = logging.getLogger(__name__)

PID_NAMESPACE = Path("/proc/self/ns/pid")
# The first namespace of processes (the kernel's PROC_PID_INIT_INO), whose ids the driver reports.
_FIRST_PIDS = "pid:[4026531836]"
# A field's scope: of all NVLinks together.
_ALL_LINKS = 2**32 - 1
_ENERGY = "energy_j_per_s"
# Counters, by name: the field of nvml.h, its scope, and the value of one of its units.
_COUNTERS: Mapping[str, tuple[str, int, float]] = {
    _ENERGY: ("NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0, 1e-3),
    ECC_CORRECTED: ("NVML_FI_DEV_ECC_SBE_VOL_TOTAL", 0, 1),
    ECC_UNCORRECTED: ("NVML_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 1),
    # Not nvmlDeviceGetPcieThroughput, each call of which takes 20 ms.
    "pcie_rx_bytes_per_s": ("NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1),
    "pcie_tx_bytes_per_s": ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1),
    "nvlink_rx_bytes_per_s": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS, 1024),
    "nvlink_tx_bytes_per_s": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS, 1024),
}
# Why its clocks are lower than they could be, by name: bits of nvml.h. Not among them is what is
# no matter of a second, such as an idle GPU, or clocks that somebody has set.
_REASONS: Mapping[str, tuple[str, ...]] = {
    POWER_CAPPED: ("SwPowerCap",),
    HEAT_SLOWDOWN: ("SwThermalSlowdown", "HwThermalSlowdown"),
    # Older drivers do not tell a hardware slowdown's cause, heat or the power supply.
    HARDWARE_SLOWDOWN: ("HwSlowdown", "HwPowerBrakeSlowdown"),
}


def create(watched: Watched) -> GpuMetric | None:
    nvml = open_nvml() if watched.gpus else None
    if nvml is None:
        return None
    return GpuMetric(
        nvml,
        watched.gpus,
        own_pids=watched.pids if _sees_all_processes() else None,
        has_machine=watched.has_machine,
    )


class GpuMetric:
    """Names contain the index of the GPU among the agent's GPUs, such as gpu0_ratio.

    A rate covers the second that ends at its tick. All else is as it is at the tick: the share of
    seconds at which clocks were lowered is the mean of zeros and ones.
    """

    def __init__(
        self,
        nvml: Any,
        gpus: Sequence[str],
        *,
        own_pids: tuple[int, ...] | None = None,
        has_machine: bool = False,
    ) -> None:
        """`own_pids`: the trainers'; None: NVML's processes cannot be told from them.

        `has_machine`: no other agent shares the GPUs, so that their power is its gang's.
        """
        self._nvml = nvml
        found = handles(nvml, gpus[:MOST_GPUS])
        self._gpu_count = len(gpus)
        self._devices = [(place, device, Rates()) for place, device in found]
        self._own_pids = own_pids
        self._has_machine = has_machine
        self._fields = {
            name: (getattr(nvml, field), scope, unit)
            for name, (field, scope, unit) in _COUNTERS.items()
            if hasattr(nvml, field)
        }

    def read(self, tick: int) -> dict[str, float | int | None]:
        found = {place: self._read(tick, device, rates) for place, device, rates in self._devices}
        values: dict[str, float | int | None] = {
            gpu_extra(place, name): value
            for place, of_gpu in found.items()
            for name, value in of_gpu.items()
            if value is not None
        }
        powers_w = [of_gpu.get(_ENERGY) for of_gpu in found.values()]
        if self._has_machine and len(powers_w) == self._gpu_count and None not in powers_w:
            values[GPU_POWER_EXTRA] = sum(power_w or 0.0 for power_w in powers_w)
        return values

    def _read(self, tick: int, device: Any, rates: Rates) -> dict[str, float | int | None]:
        nvml = self._nvml
        load = self._ask("UtilizationRates", device)
        memory = self._ask("MemoryInfo", device)
        power_mw = self._ask("PowerUsage", device)
        clocks_mhz = {
            name: self._ask("ClockInfo", device, clock)
            for name, clock in (("sm", nvml.NVML_CLOCK_SM), ("memory", nvml.NVML_CLOCK_MEM))
        }
        return {
            "ratio": None if load is None else load.gpu / 100,
            "memory_used_bytes": None if memory is None else memory.used,
            "power_w": None if power_mw is None else power_mw / 1000,
            **{
                f"{name}_clock_hz": None if mhz is None else mhz * 1_000_000
                for name, mhz in clocks_mhz.items()
            },
            "temperature_celsius": self._ask("Temperature", device, nvml.NVML_TEMPERATURE_GPU),
            FOREIGN_PROCESSES: self._foreign_processes(device),
            **self._lowered_clocks(device),
            **self._rates(tick, device, rates),
        }

    def _lowered_clocks(self, device: Any) -> dict[str, float | None]:
        bits = self._ask_first(
            ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"), device
        )
        if bits is None:
            return dict.fromkeys(_REASONS)
        return {
            name: float(
                any(
                    bits & getattr(self._nvml, f"nvmlClocksThrottleReason{reason}", 0)
                    for reason in reasons
                )
            )
            for name, reasons in _REASONS.items()
        }

    def _rates(self, tick: int, device: Any, rates: Rates) -> dict[str, float | None]:
        fields = [(field, scope) for field, scope, _ in self._fields.values()]
        answers = self._ask("FieldValues", device, fields) or ()
        counters = {
            name: count
            for name, answer in zip(self._fields, answers, strict=False)
            if (count := self._count(answer)) is not None
        }
        return {
            name: None if rate is None else rate * self._fields[name][2]
            for name, rate in rates.update(tick, counters).items()
        }

    def _count(self, answer: Any) -> int | None:
        nvml = self._nvml
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            return None
        members = {
            nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        }
        member = members.get(answer.valueType)
        return None if member is None else getattr(answer.value, member)

    def _foreign_processes(self, device: Any) -> int | None:
        """Count processes computing on the GPU that are neither trainers nor started by them."""
        if self._own_pids is None:
            return None
        # The binding's function without a version ends in an error that is none of NVML's where
        # the driver is older than the binding.
        names = ("ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2")
        found = self._ask_first(names, device)
        return None if found is None else _count_foreign((p.pid for p in found), self._own_pids)

    def _ask_first(self, names: Iterable[str], device: Any) -> Any | None:
        """Return the first result that succeeds: older drivers and bindings use other names."""
        answers = (self._ask(name, device) for name in names)
        return next((answer for answer in answers if answer is not None), None)

    def _ask(self, what: str, *arguments: Any) -> Any | None:
        question = getattr(self._nvml, f"nvmlDeviceGet{what}", None)
        if question is None:
            return None
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            logger.debug("GPU did not report its %s: %s", what, error)
            return None


def _count_foreign(pids: Iterable[int], own: Sequence[int]) -> int:
    count = 0
    for pid in pids:
        try:
            count += pid not in own and all(
                parent.pid not in own for parent in psutil.Process(pid).parents()
            )
        except psutil.NoSuchProcess:
            continue  # it has just ended
    return count


def _sees_all_processes() -> bool:
    """Whether this process sees the driver's process ids, which a container does not."""
    try:
        return str(PID_NAMESPACE.readlink()) == _FIRST_PIDS
    except OSError:
        return False
