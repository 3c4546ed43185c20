"""What the jobs of a cell have in common, as pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farm.core.axes import AXES, Value, values_of
from farm.core.display import count
from farm.core.machine_time import machine_count
from farm.core.nouns import counted

_PLACES = {axis.field: place for place, axis in enumerate(AXES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellConfiguration:
    """What the jobs of a cell have in common; `configuration["world_size"]` is one value of it.

    `place`: the value of every axis, in their order. `emulator`: what emulates the network;
    `length`: how long a job of it measures; `labels`: which agents may serve it.
    """

    place: tuple[Value, ...]
    emulator: str | None
    length: str
    labels: str

    def __getitem__(self, field: str) -> Any:
        place = _PLACES.get(field)
        return getattr(self, field) if place is None else self.place[place]

    @property
    def values(self) -> dict[str, Value]:
        """The value of every axis, by its field."""
        return dict(zip(_PLACES, self.place, strict=True))

    @property
    def is_one_machine(self) -> bool:
        """Whether it needs no network, and so is the same on every one."""
        return (self["world_size"], self["server_count"]) == (1, 0)

    @property
    def machine_count(self) -> int:
        """Ranks that train, and servers on machines of their own."""
        return machine_count(self["world_size"], self["server_count"], self["server_placement"])


def configuration_of(spec: Mapping[str, Any]) -> CellConfiguration:
    """Read the specification of a stored job, which was checked when it was written."""
    return CellConfiguration(
        place=tuple(values_of(spec).values()),
        emulator=spec.get("emulator"),
        length=_length(spec),
        labels=", ".join(f"{k}={v}" for k, v in sorted((spec.get("labels") or {}).items())),
    )


def _length(spec: Mapping[str, Any]) -> str:
    of_epochs, steps = spec.get("epochs"), spec.get("steps")
    if of_epochs:
        return counted(of_epochs, "epoch", write=count)
    return counted(steps or 0, "step", write=count)
