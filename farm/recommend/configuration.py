"""Configurations as the recommender compares them, and their measured step times.

Configurations with different set-ups are never pooled. To a predictor the whole set-up is one
name, so that a new setting needs no change of any predictor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import BY_NAME, JOB_AXES, SETUP_AXES, Axis, spec_values
from farm.configuration.spec import (
    CONDITIONS,
    EMULATORS,
    TCP_PROXY,
    UNTOUCHED,
    JobSpec,
    NetworkConditions,
    OperatorPlacement,
    ServerPlacement,
    TrainingPass,
)
from farm.measuring.machine_time import machine_count, serving_machine_count
from farm.values.fields import Amount, Whole

UNTOUCHED_NETWORK = NetworkConditions()
_TOLD_BY_THEIR_DELAY = frozenset({*EMULATORS, UNTOUCHED}) - {TCP_PROXY}
_BETWEEN = ", "
_RANKS = "ranks_per_agent"
_COLLOCATED = f"server_placement={ServerPlacement.COLLOCATED.value}"


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

    `world_size` counts the ranks that train; servers come on top. `placement` is all of how the
    strategy is set up, see `layout_name`.
    """

    framework: str | None = None
    strategy: str | None = None
    placement: str | None = None
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
        return machines(self.world_size, self.server_count, self.placement)

    @property
    def serving_machine_count(self) -> int:
        """Those of them that only serve."""
        return serving_machines(self.server_count, self.placement)

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


def layout_name(placement: str | None, settings: Mapping[str, Any]) -> str | None:
    """Return the name; None: as usual in everything.

    `placement`: of operators, free text where it was imported. `settings`: by the fields of
    SETUP_AXES; what is None or missing was not said.
    """
    parts = [] if placement is None else [placement]
    for axis in SETUP_AXES:
        value = settings.get(axis.field)
        if value is not None and not axis.is_usual(value):
            text = axis.address(value).replace("%", "%25").replace(",", "%2C")
            parts.append(f"{axis.name}={text}")
    return _BETWEEN.join(parts) or None


def layout_of(spec: JobSpec) -> str | None:
    """Return how a job of the farm is set up."""
    return layout_name(farm_placement(spec.placement.value), spec_values(spec))


def farm_placement(placement: str | None) -> str | None:
    """Return a placement as the farm's configurations have it: soft is the usual one."""
    return None if placement == OperatorPlacement.SOFT.value else placement


def layout_axes(name: str | None) -> dict[str, int | float | str]:
    """Return what a sweep file has to say for a layout, by key, as far as it can ask for it."""
    axes: dict[str, int | float | str] = {}
    for part in (name or "").split(_BETWEEN):
        key, _, text = part.partition("=")
        axis = BY_NAME.get(key)
        if axis in SETUP_AXES and text:
            axes[key] = _value(axis, text.replace("%2C", ",").replace("%25", "%"))
        elif part == OperatorPlacement.HARD.value:
            axes["placement"] = part
    return axes


def _value(axis: Axis, text: str) -> int | float | str:
    if isinstance(axis.type, Whole):
        return int(text)
    return float(text) if isinstance(axis.type, Amount) else text


def part_of_one_machine(name: str | None) -> str | None:
    """Return of a gang's layout what holds for one machine: how it trains, and on what."""
    parts = (name or "").split(_BETWEEN)
    names = {axis.name for axis in SETUP_AXES if not axis.holds_alone}
    kept = [part for part in parts if part.partition("=")[0] not in names]
    return _BETWEEN.join(kept) or None


def learning_part(name: str | None) -> str | None:
    """Return of a layout what may change what is learnt in an epoch, such as the optimizer.

    Neither where anything runs nor how a batch is shared does so in synchronous training.
    """
    parts = (name or "").split(_BETWEEN)
    names = {
        axis.name
        for axis in SETUP_AXES
        if not (axis.is_of_speed or axis.is_of_servers or axis.is_of_every_strategy)
    }
    return _BETWEEN.join(part for part in parts if part.partition("=")[0] in names) or None


def cell_fields(name: str | None) -> dict[str, Any]:
    """Return the same by the fields of a cell, and as values of these."""
    axes = layout_axes(name)
    return {
        axis.field: axis.type.read(axes[axis.name], axis.name)
        for axis in JOB_AXES
        if axis.name in axes
    }


def machines(world_size: int, server_count: int, placement: str | None) -> int:
    """Return how many machines it takes; servers are on their own unless it is said otherwise."""
    where, each = _server_placement(placement), _ranks_per_agent(placement)
    return machine_count(world_size, server_count, where, ranks_per_agent=each)


def serving_machines(server_count: int, placement: str | None) -> int:
    """Return how many of them only serve."""
    return serving_machine_count(server_count, _server_placement(placement))


def fills_machines(world_size: int, placement: str | None) -> bool:
    """Whether every machine has as many ranks as the layout says; no other gang can be made."""
    return world_size % _ranks_per_agent(placement) == 0


def _server_placement(placement: str | None) -> str | None:
    """Return where a layout has its servers; None: on machines of their own."""
    is_collocated = _COLLOCATED in (placement or "").split(_BETWEEN)
    return ServerPlacement.COLLOCATED.value if is_collocated else None


def _ranks_per_agent(placement: str | None) -> int:
    """Return how many ranks a layout has on each machine."""
    names = (part.partition("=") for part in (placement or "").split(_BETWEEN))
    return next((int(text) for name, _, text in names if name == _RANKS), 1)
