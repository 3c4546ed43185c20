"""What one trainer is told before its peers are known."""

from __future__ import annotations

import dataclasses
import math

from farm.configuration.model_files import file_of
from farm.messages.commands import StartRank
from farm.messages.trainer_lines import Assignment
from worker_agent.config import AgentConfig

# Importing, loading data and compiling are not within the job's time limit.
_CPU_GRACE_S = 600.0


def assignment_of(command: StartRank, role: str, config: AgentConfig) -> Assignment:
    """Return the first line for a process of that role."""
    name = file_of(command.spec.model)
    path = None if name is None else config.models.path_of(name)
    # The agent ends a rank whose time is over; this ends one whose agent cannot.
    cpu_s = math.ceil((command.spec.time_limit_s + _CPU_GRACE_S) * len(config.cpus))
    return Assignment(
        job=command.spec,
        rank=command.rank,
        role=role,
        cpus=config.cpus,
        data_dir=config.settings.data_dir,
        model_file=None if path is None else str(path),
        interface=config.interface,
        limits=dataclasses.replace(config.trainer_limits, cpu_s=cpu_s),
    )
