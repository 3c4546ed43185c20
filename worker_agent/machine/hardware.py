"""The hardware of this machine, and its fingerprint, which every measurement carries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sysconfig
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import psutil

from farm import __version__
from farm.configuration.catalogue import TORCH
from farm.configuration.model_files import MODEL_CAPABILITY
from farm.configuration.own_data import READS_OWN_DATA
from farm.configuration.scripts import PYTHON_CAPABILITY, RUNS_BUNDLES, capability_of
from farm.configuration.spec import (
    GPUS_CAPABILITY,
    MAX_RANKS_PER_AGENT,
    NETWORK_CAPABILITY,
    RANKS_CAPABILITY,
    TENSORFLOW,
    TENSORFLOW_PACKAGES,
    TORCH_COMPILE,
    TORCH_VERSION,
)
from farm.messages.agents import CLOSES_PORTS, TRAINER_USER, AgentFacts, Hardware
from farm.placement.agent_index import SHARES_CORES
from worker_agent.config import OWN_TRAINER, AgentConfig
from worker_agent.machine.cloud import cloud_labels
from worker_agent.machine.control_group import PROC, cpu_quota_cores, memory_limit_bytes
from worker_agent.machine.gpus import names_of, open_nvml, software_of
from worker_agent.network.emulators import capabilities

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CPUINFO = Path("/proc/cpuinfo")

# The packages that PyTorch and TensorFlow bring for GPUs, of CUDA 13 and 12.
_GPU_LIBRARIES = {
    "cuDNN": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def read_facts(
    config: AgentConfig,
    *,
    ask_cloud: Callable[[str], dict[str, str]] = cloud_labels,
    proc: Path = PROC,
) -> AgentFacts:
    """Read the facts of the machine and its cloud once; they do not change while the agent runs."""
    labels = ask_cloud(config.cloud) if config.cloud else {}
    accelerators = read_accelerators(config.gpus)
    first_port, last_port = config.settings.port_range
    core_count = own_core_count(config.cpus, proc=proc)
    return AgentFacts(
        machine_id=read_machine_id(),
        address=config.address,
        interface=config.interface,
        first_port=first_port,
        last_port=last_port,
        cpus=config.cpus,
        gpus=config.gpus or (),
        labels={**labels, **config.settings.labels},
        capabilities=(
            *capabilities(config.site),
            *(f"{GPUS_CAPABILITY}{count + 1}" for count in range(len(accelerators))),
            *((CLOSES_PORTS,) if config.open_ports_reason is None else ()),
            *((TRAINER_USER,) if config.trainer_user is not None else ()),
            *((SHARES_CORES,) if config.settings.shares_cores else ()),
            *_of_several_ranks(config, core_count),
            *(f"{NETWORK_CAPABILITY}{name}" for name in config.settings.networks),
            *((TENSORFLOW,) if offers_tensorflow(config) else ()),
            *_torch_capabilities(),
            READS_OWN_DATA,
            *(f"{MODEL_CAPABILITY}{name}" for name in config.models.names()),
            *(capability_of(name) for name in config.scripts.names()),
            *((RUNS_BUNDLES,) if config.runs_bundles else ()),
            *(f"{PYTHON_CAPABILITY}{name}" for name in config.settings.pythons),
        ),
        hardware=Hardware(
            cpu_model=parse_cpu_model(_CPUINFO.read_text()) or platform.machine(),
            core_count=core_count,
            memory_bytes=own_memory_bytes(proc=proc),
            accelerators=accelerators,
            accelerator_software=read_accelerator_software() if accelerators else {},
            kernel=platform.release(),
            tensorflow_version=read_tensorflow_version(),
            python_version=platform.python_version(),
            benchfarm_version=__version__,
        ),
    )


def _of_several_ranks(config: AgentConfig, core_count: float) -> tuple[str, ...]:
    """Return how many ranks this agent takes at once: at most its cores, unless ranks share cores.

    With a CPU quota, only the whole cores of the quota count.
    """
    most = MAX_RANKS_PER_AGENT if config.settings.shares_cores else int(core_count)
    counts = range(2, min(most, MAX_RANKS_PER_AGENT) + 1)
    return tuple(f"{RANKS_CAPABILITY}{count}" for count in counts)


def own_memory_bytes(*, proc: Path = PROC) -> int:
    """Return the memory of the machine, or the limit of this agent's control groups."""
    machine_bytes: int = psutil.virtual_memory().total
    limit_bytes = memory_limit_bytes(os.getpid(), proc=proc)
    return machine_bytes if limit_bytes is None else min(machine_bytes, limit_bytes)


def own_core_count(cpus: Collection[int], *, proc: Path = PROC) -> float:
    """Return the number of cores, or the CPU quota in cores, such as 1.5."""
    quota_cores = cpu_quota_cores(os.getpid(), proc=proc)
    if quota_cores is None or quota_cores >= len(cpus):
        return len(cpus)
    return round(quota_cores, 3)


def read_machine_id() -> str:
    """Return an id of this machine, by which the server prevents two agents from sharing its cores.

    Without a machine id, as in containers, it is the kernel's boot id: containers of one host share
    it, as they share the cores.
    """
    for file in (_MACHINE_ID, _BOOT_ID):
        if file.exists():
            text = file.read_text().strip()
            if text:
                return text
    return platform.node()


def parse_cpu_model(cpuinfo: str) -> str | None:
    """Return the first core's model name; None where the kernel gives none, as on ARM."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return None


def read_accelerators(gpus: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the agent's GPUs, in order."""
    nvml = open_nvml() if gpus else None
    return names_of(nvml, gpus or ()) if nvml is not None else ()


def read_accelerator_software() -> dict[str, str]:
    """Return the versions of the GPUs' driver and CUDA, and of the libraries of pip's frameworks.

    Libraries installed in another way, as in a container, are not known.
    """
    nvml = open_nvml()
    libraries = {
        name: next(filter(None, map(_installed_version, packages)), None)
        for name, packages in _GPU_LIBRARIES.items()
    }
    found = {name: version for name, version in libraries.items() if version is not None}
    return found if nvml is None else {**software_of(nvml), **found}


def offers_tensorflow(config: AgentConfig) -> bool:
    """Whether trainers of this agent have TensorFlow.

    An operator's own trainer is assumed to have it.
    """
    return config.trainer != OWN_TRAINER or _is_importable("tensorflow")


def read_tensorflow_version() -> str | None:
    """Return the installed version without importing it: that takes seconds and 300 MB."""
    if not _is_importable("tensorflow"):
        return None
    return next(filter(None, map(_installed_version, TENSORFLOW_PACKAGES)), None)


def builds_without_gpus() -> dict[str, str]:
    """Return the frameworks installed without GPU support, and how to install them with it."""
    found = {}
    cpu_version = _installed_version("tensorflow-cpu")
    if cpu_version is not None and _installed_version("tensorflow") is None:
        found[f"tensorflow-cpu {cpu_version}"] = (
            "pip uninstall tensorflow-cpu && pip install 'tensorflow[and-cuda]>=2.21,<2.22'"
        )
    torch_version = _installed_version("torch")
    if torch_version is not None and torch_version.endswith("+cpu"):
        found[f"torch {torch_version}"] = "pip uninstall torch && pip install torch"
    return found


def _torch_capabilities() -> tuple[str, ...]:
    """Return capabilities for PyTorch and its version, which a gang's ranks must share."""
    version = _installed_version("torch") if _is_importable("torch") else None
    if not version:
        return ()
    return (TORCH, f"{TORCH_VERSION}{version}", *((TORCH_COMPILE,) if _can_compile() else ()))


def _can_compile() -> bool:
    """Whether torch.compile finds a C++ compiler and Python's own headers, which its code needs."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which("g++") is not None and headers.is_file()


def _is_importable(module: str) -> bool:
    """Whether Python finds the module, which is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
