"""The NVIDIA GPUs of this machine, and which of them are the agent's.

A GPU is identified by its UUID. Unlike its number, the UUID is the same in NVML and CUDA, in every
process, and after a reboot.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farm.errors import InvalidSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuShare:
    """One of `count` equal shares, by its number from 1; empty if there are fewer GPUs."""

    number: int
    count: int

    def of(self, gpus: Sequence[str]) -> tuple[str, ...]:
        each = len(gpus) // self.count
        return tuple(gpus[(self.number - 1) * each : self.number * each])


# A part of a GPU (MIG). NVML lists it under its GPU alone, and knows it by its UUID.
_PART = "MIG-"


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


def own_gpus(
    nvml: Any | None, setting: Sequence[str] | GpuShare | None, *, visible: str | None
) -> tuple[str, ...] | None:
    """Return the UUIDs of the agent's GPUs, in order; None: unknown.

    `setting`: AGENT_GPUS. `visible`: CUDA_VISIBLE_DEVICES, which says it as CUDA reads it where
    AGENT_GPUS does not: up to the first name that is no GPU. All of the machine's by default.
    Numbers are NVML's. CUDA's are the same where all GPUs are of one model, or where
    CUDA_DEVICE_ORDER is PCI_BUS_ID.

    Raises:
        InvalidSpec: AGENT_GPUS names a missing GPU, or one twice.
    """
    if setting == ():
        return ()
    if nvml is None:
        if setting is not None and not isinstance(setting, GpuShare):
            expected = "GPUs of this machine: NVML finds none; is NVIDIA's driver loaded?"
            raise InvalidSpec("AGENT_GPUS", ",".join(setting), expected)
        return None
    uuids = _uuids(nvml)
    if setting is None:
        return _as_cuda_reads(nvml, uuids, visible)
    if isinstance(setting, GpuShare):
        return setting.of(_as_cuda_reads(nvml, uuids, visible))
    found = [_find(nvml, uuids, name) for name in setting]
    for name, uuid in zip(setting, found, strict=True):
        if uuid is None or found.count(uuid) > 1:
            there = ", ".join(f"{number} ({uuids[number]})" for number in uuids) or "none"
            raise InvalidSpec("AGENT_GPUS", name, f"GPUs of this machine, each once: {there}")
    return tuple(uuid for uuid in found if uuid is not None)


def names_of(nvml: Any, uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each of these GPUs, such as "NVIDIA H100 80GB HBM3"."""
    return tuple(_text(nvml.nvmlDeviceGetName(handle)) for _, handle in handles(nvml, uuids))


def software_of(nvml: Any) -> dict[str, str]:
    """Return the versions of the driver, and of the newest CUDA that it supports."""
    found = {}
    with contextlib.suppress(nvml.NVMLError):
        found["driver"] = _text(nvml.nvmlSystemGetDriverVersion())
    with contextlib.suppress(nvml.NVMLError):
        version = nvml.nvmlSystemGetCudaDriverVersion()
        found["CUDA"] = f"{version // 1000}.{version % 1000 // 10}"
    return found


def handles(nvml: Any, uuids: Sequence[str]) -> list[tuple[int, Any]]:
    """Return the place among `uuids` and NVML's handle of each GPU, without those that broke."""
    found = []
    for place, uuid in enumerate(uuids):
        try:
            found.append((place, nvml.nvmlDeviceGetHandleByUUID(uuid)))
        except nvml.NVMLError as error:
            logger.warning("GPU %s is there and cannot be used: %s", uuid, error)
    return found


def _uuids(nvml: Any) -> dict[int, str]:
    """Return the UUID of each GPU by its number, without those that are there and broken."""
    found = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            found[number] = _text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            logger.warning("GPU %d is there and cannot be used: %s", number, error)
    return found


def _as_cuda_reads(nvml: Any, known: dict[int, str], visible: str | None) -> tuple[str, ...]:
    if visible is None:
        return tuple(known.values())
    found: list[str] = []
    for name in visible.split(","):
        uuid = _find(nvml, known, name.strip())
        if uuid is None or uuid in found:
            break
        found.append(uuid)
    return tuple(found)


def _find(nvml: Any, known: dict[int, str], name: str) -> str | None:
    """Return the UUID of the GPU that a number, a UUID or the beginning of one names."""
    if name.isdecimal():
        return known.get(int(name))
    if name.startswith(_PART):
        try:
            nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError:
            return None
        return name
    begun = [uuid for uuid in known.values() if name and uuid.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def _text(name: bytes | str) -> str:
    """Return a text of NVML's; older bindings return bytes."""
    return name.decode() if isinstance(name, bytes) else name
