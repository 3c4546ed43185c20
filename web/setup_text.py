"""Describes a configuration in words, all of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import cast

from farm.cells.configuration import CellConfiguration
from farm.configuration.axes import PROFILE_AXES
from farm.configuration.axis import Value
from farm.configuration.scripts import workload_text
from farm.configuration.words import network_words, setup_words
from farm.measuring.machine_time import machine_count
from farm.text.display import count
from farm.text.plurals import counted

_MOST_KEPT = 4096  # of some 100 bytes


# By a template it took a third of the page of two sweeps, which has 200 of them.
@functools.lru_cache(maxsize=_MOST_KEPT)
def configuration_words(configuration: CellConfiguration) -> str:
    """Say what was measured, all of it."""
    agents = "agent" if configuration.machine_count == 1 else "agents"
    values = configuration.values
    parts = [
        configuration["strategy"],
        f"{configuration.machine_count} {agents}",
        f"batch {count(configuration['global_batch_size'])}",
        workload_text(configuration["model"], configuration["dataset"]),
    ]
    if values["training_pass"] != "forward_backward":
        parts.append(configuration["training_pass"].replace("_", " "))
    parts += setup_words(values)
    if any(not axis.is_left_out(values[axis.field]) for axis in PROFILE_AXES):
        parts.append(network_words(values))
    if configuration.emulator:
        parts.append(configuration.emulator)
    return ", ".join(parts)


def size_words(values: Mapping[str, Value]) -> str:
    """Say how many machines train, and with how many ranks where these are more."""
    world_size, each = cast(int, values["world_size"]), cast(int, values["ranks_per_agent"])
    machines = counted(machine_count(world_size, 0, None, ranks_per_agent=each), "machine")
    return machines if each == 1 else f"{counted(world_size, 'rank')} on {machines}"
