"""The configuration that all jobs of a cell have in common, as pages and commands show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from farm.configuration.axes import AXES, values_of
from farm.configuration.axis import Value
from farm.measuring.machine_time import machine_count, serving_machine_count
from farm.text.display import count
from farm.text.plurals import counted

_PLACES = {axis.field: place for place, axis in enumerate(AXES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellConfiguration:
    """The common values of a cell's jobs, such as `configuration["world_size"]`.

    `place`: the value of every axis, in their order. The other fields are those of a job, None
    where they are not known; `label_pairs`: names and values of its labels, in order.
    """

    place: tuple[Value, ...]
    emulator: str | None = None
    steps: int | None = None
    epochs: int | None = None
    warmup_step_count: int | None = None
    repeat: bool | None = None
    time_limit_s: float | None = None
    label_pairs: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, field: str) -> Any:
        place = _PLACES.get(field)
        return getattr(self, field) if place is None else self.place[place]

    @property
    def values(self) -> dict[str, Value]:
        """The value of every axis, by its field."""
        return dict(zip(_PLACES, self.place, strict=True))

    @property
    def length(self) -> str:
        """How long a job of it measures."""
        return length_of(self.steps, self.epochs)

    @property
    def labels(self) -> str:
        """Which agents may serve it; empty: all of them."""
        return ", ".join(f"{name}={value}" for name, value in self.label_pairs)

    @property
    def is_one_machine(self) -> bool:
        """Whether it needs no network, and so is the same on every one."""
        return self.machine_count == 1

    @property
    def training_machine_count(self) -> int:
        """Machines with ranks that train."""
        return cast(int, self["world_size"] // self["ranks_per_agent"])

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return machine_count(
            self["world_size"],
            self["server_count"],
            self["server_placement"],
            ranks_per_agent=self["ranks_per_agent"],
        )

    @property
    def serving_machine_count(self) -> int:
        """Those of them that only serve."""
        return serving_machine_count(self["server_count"], self["server_placement"])

    @property
    def compared(self) -> CellConfiguration:
        """What two cells share that may be compared: not how long, and not on which machines."""
        return CellConfiguration(place=self.place, emulator=self.emulator)


def configuration_of(spec: Mapping[str, Any]) -> CellConfiguration:
    """Read the specification of a stored job, which was checked when it was written."""
    return CellConfiguration(
        place=tuple(values_of(spec).values()),
        emulator=spec.get("emulator"),
        steps=spec.get("steps"),
        epochs=spec.get("epochs"),
        warmup_step_count=spec.get("warmup_step_count"),
        repeat=spec.get("repeat"),
        time_limit_s=spec.get("time_limit_s"),
        label_pairs=tuple(sorted((spec.get("labels") or {}).items())),
    )


def length_of(steps: int | None, epochs: int | None) -> str:
    """Return how long a job measures, in words."""
    if epochs is not None:
        return counted(epochs, "epoch", write=count)
    return "to its end" if steps is None else counted(steps, "step", write=count)
