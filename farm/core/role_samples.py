"""What agents sample of the trainers' roles and of their calls: names among a sample's extras."""

from __future__ import annotations

# Calls that read or write, of the trainers' process tree, in a second.
TRAINER_READS_EXTRA = "trainer_read_operations_per_s"
TRAINER_WRITES_EXTRA = "trainer_write_operations_per_s"


def cpu_extra(role: str) -> str:
    """Name the share of the agent's cores that the processes of a role used."""
    return f"{role}_cpu_ratio"


def resident_extra(role: str) -> str:
    """Name the memory that the processes of a role have."""
    return f"{role}_resident_bytes"
