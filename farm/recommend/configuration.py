"""What a step's time depends on, and what was measured of it. Values only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from farm.configuration.spec import (
    CONDITIONS,
    EMULATORS,
    TCP_PROXY,
    UNTOUCHED,
    NetworkConditions,
    TrainingPass,
)
from farm.recommend.layout import machines

UNTOUCHED_NETWORK = NetworkConditions()
_TOLD_BY_THEIR_DELAY = frozenset({*EMULATORS, UNTOUCHED}) - {TCP_PROXY}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Configuration(NetworkConditions):
    """One way to train on one network. Names are free text where they were imported; None: unnamed.

    `world_size` counts the ranks that train; servers come on top. `placement` is all of how the
    strategy is set up, see `farm.recommend.layout`. No bandwidth: not limited.
    """

    model: str | None = None
    dataset: str | None = None
    training_pass: TrainingPass = TrainingPass.FORWARD_BACKWARD
    framework: str | None = None
    strategy: str | None = None
    placement: str | None = None
    network: str | None = None
    instance_type: str | None = None
    world_size: int
    server_count: int = 0
    global_batch_size: int

    def __repr__(self) -> str:
        # Lists are sorted by it: by names first, and by the network's conditions last.
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS_IN_ORDER)
        return f"Configuration({values})"

    @property
    def is_one_machine(self) -> bool:
        """Whether it needs no network at all."""
        return self.world_size == 1 and self.server_count == 0

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return machines(self.world_size, self.server_count, self.placement)

    @property
    def per_replica_batch_size(self) -> float:
        """Examples that a replica consumes in one step, on average."""
        return self.global_batch_size / self.world_size

    def without_network(self) -> Configuration:
        """Return the same where no packet is sent: what one machine is, whatever its network."""
        return self.on_network(None, UNTOUCHED_NETWORK)

    def on_network(self, name: str | None, conditions: NetworkConditions) -> Configuration:
        """Return the same on another network."""
        return dataclasses.replace(self, network=name, **conditions.by_field)


_NAMES_OF_FIELDS = [one.name for one in dataclasses.fields(Configuration)]
_FIELDS_IN_ORDER = sorted(_NAMES_OF_FIELDS, key=lambda name: name in CONDITIONS)


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
