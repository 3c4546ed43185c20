"""Names of sampled metrics: for each role, trainers' calls, power, and each GPU."""

from __future__ import annotations

from collections.abc import Mapping

# This interface carries each byte of all ranks of a machine. So bytes received and sent are those
# of the trainers' own TCP connections there, and the whole interface's anywhere else.
LOOPBACK_INTERFACE = "lo"

# Calls that read or write, of the trainers' process tree, in a second.
TRAINER_READS_EXTRA = "trainer_read_operations_per_s"
TRAINER_WRITES_EXTRA = "trainer_write_operations_per_s"

# Mean power over a second, of all processors with their memory, and of all GPUs. Agents that share
# a machine with others have neither.
CPU_POWER_EXTRA = "cpu_power_w"
GPU_POWER_EXTRA = "gpu_power_w"

MOST_GPUS = 16  # of an agent that are sampled
# Why a GPU's clocks are lower than they could be: 1 at a second at which that is so, else 0.
POWER_CAPPED = "power_capped_ratio"
HEAT_SLOWDOWN = "heat_slowdown_ratio"
HARDWARE_SLOWDOWN = "hardware_slowdown_ratio"
# Processes that compute on it and are no trainer's.
FOREIGN_PROCESSES = "foreign_process_count"
ECC_CORRECTED = "ecc_corrected_errors_per_s"
ECC_UNCORRECTED = "ecc_uncorrected_errors_per_s"


def cpu_extra(role: str) -> str:
    """Name the share of the agent's cores that the processes of a role used."""
    return f"{role}_cpu_ratio"


def resident_extra(role: str) -> str:
    """Name the memory that the processes of a role have."""
    return f"{role}_resident_bytes"


def gpu_extra(place: int, name: str) -> str:
    """Name a value of the GPU at that place among the agent's, such as gpu0_ratio."""
    return f"gpu{place}_{name}"


def highest_of_gpus(extra: Mapping[str, float], *names: str) -> float | None:
    """Return the highest of these values of all GPUs in a sample; None: there is none."""
    keys = (gpu_extra(place, name) for place in range(MOST_GPUS) for name in names)
    return max((extra[key] for key in keys if key in extra), default=None)
