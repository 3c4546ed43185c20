"""Configurations as the recommender compares them, and their measured step times.

Configurations with different set-ups are never pooled. To a predictor the whole set-up is one
value, so that a new setting needs no change of any predictor.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from farm.configuration.spec import (
    CONDITIONS,
    EMULATOR_NAMES,
    TCP_PROXY,
    UNTOUCHED,
    NetworkConditions,
    TrainingPass,
)
from farm.recommend.setup import PUBLISHED_USUAL, USUAL_SETUP, Setup

UNTOUCHED_NETWORK = NetworkConditions()
# Fields of a configuration that name what one machine computes, and what all exchange; the general
# before the special.
COMPUTE_NAMES = ("model", "dataset", "training_pass", "framework", "instance_type")
NETWORK_NAMES = ("strategy", "setup", "network")
_TOLD_BY_THEIR_DELAY = frozenset({*EMULATOR_NAMES, UNTOUCHED}) - {TCP_PROXY}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask(NetworkConditions):
    """What is trained with which batch, on which network: what a question gives.

    Names are free text where they were imported; None: unnamed.
    """

    model: str | None = None
    dataset: str | None = None
    training_pass: TrainingPass = TrainingPass.FORWARD_BACKWARD
    global_batch_size: int

    @property
    def task(self) -> dict[str, Any]:
        """Return the values of all this by field."""
        return {name: getattr(self, name) for name in _TASK}


_TASK = [one.name for one in dataclasses.fields(TrainingTask)]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Configuration(TrainingTask):
    """One way to do a training task.

    `world_size` counts the ranks that train; servers come on top. Answers have the text of `setup`,
    all of how the strategy is set up, as `placement`.
    """

    framework: str | None = None
    strategy: str | None = None
    setup: Setup = dataclasses.field(default=USUAL_SETUP, metadata=PUBLISHED_USUAL)
    network: str | None = None
    instance_type: str | None = None
    world_size: int
    server_count: int = 0

    def __repr__(self) -> str:
        # Lists are sorted by it: by names first, and by the batch and the network last.
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS_IN_ORDER)
        return f"Configuration({values})"

    @property
    def is_one_machine(self) -> bool:
        """Whether it is a single rank, which needs no network at all."""
        return self.world_size == 1 and self.server_count == 0

    @property
    def has_network(self) -> bool:
        """Whether anything goes between machines; the ranks of one need no network either."""
        return self.machine_count > 1

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return self.setup.machine_count(self.world_size, self.server_count)

    @property
    def serving_machine_count(self) -> int:
        """Those of them that only serve."""
        return self.setup.serving_machine_count(self.server_count)

    @property
    def per_replica_batch_size(self) -> float:
        """Examples that a replica consumes in one step, on average."""
        return self.global_batch_size / self.world_size

    @property
    def per_machine_batch_size(self) -> float:
        """Examples that all replicas of a machine consume in one step, on average."""
        return self.global_batch_size / (self.machine_count - self.serving_machine_count)

    def without_network(self) -> Configuration:
        """Return the same where no packet is sent: what one machine is, whatever its network."""
        return self.on_network(None, UNTOUCHED_NETWORK)

    def on_network(self, name: str | None, conditions: NetworkConditions) -> Configuration:
        """Return the same on another network."""
        return dataclasses.replace(self, network=name, **conditions.by_field)


_LAST = ("global_batch_size", *CONDITIONS)
_FIELDS_IN_ORDER = [
    *(one.name for one in dataclasses.fields(Configuration) if one.name not in _LAST),
    *_LAST,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A measured time of one synchronous step, of one origin and one kind of hardware.

    `weight` is at most 1; less says that the value is suspicious, and how much of it is believed.
    """

    measurement_id: int
    configuration: Configuration
    step_time_s: float
    weight: float = 1.0


def network_of(name: str | None) -> str | None:
    """Return the name of a measurement's network as configurations have it.

    Emulators that delay, lose and limit packets as a real network would are told by what they do,
    so that with and without a delay it is one network; so is a network that nothing was asked of.
    A proxy stays another: TCP does not notice its delay, and a step across it takes another time.
    """
    return None if name in _TOLD_BY_THEIR_DELAY else name
