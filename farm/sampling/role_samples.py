"""Names of samples: of each role, of a trainer's calls, of a machine's power."""

from __future__ import annotations

# This interface carries each byte of all ranks of a machine. So bytes received and sent are those
# of the trainers' own TCP connections there, and the whole interface's anywhere else.
LOOPBACK = "lo"

# Calls that read or write, of the trainers' process tree, in a second.
TRAINER_READS_EXTRA = "trainer_read_operations_per_s"
TRAINER_WRITES_EXTRA = "trainer_write_operations_per_s"


# Mean power over a second, of all processors with their memory, and of all GPUs. Agents that share
# a machine with others have neither.
CPU_POWER_EXTRA = "cpu_power_w"
GPU_POWER_EXTRA = "gpu_power_w"


def cpu_extra(role: str) -> str:
    """Name the share of the agent's cores that the processes of a role used."""
    return f"{role}_cpu_ratio"


def resident_extra(role: str) -> str:
    """Name the memory that the processes of a role have."""
    return f"{role}_resident_bytes"
