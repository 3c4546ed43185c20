"""What a configuration's step time may depend on, as names and numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.recommend.configuration import Configuration, Observation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What is free text or a name, from the one that changes a step most to the one that changes it
# least: a child in this order is fitted near its parent.
NAMES = (
    "model",
    "dataset",
    "training_pass",
    "framework",
    "instance_type",
    "placement",
    "strategy",
    "network",
)
# Of the network; more of each never makes a step faster, but for the bandwidth.
CONDITIONS = ("one_way_delay_s", "bandwidth_bytes_per_s", "packet_loss_ratio", "jitter_s")
# Fewer measurements say nothing that could be checked.
MIN_OBSERVATIONS = 3


@dataclass(frozen=True, slots=True)
class Known:
    """What occurs in the measurements: beyond these names and conditions nothing is guessed."""

    count: int
    names: dict[str, frozenset[object]]
    conditions: dict[str, frozenset[float | None]]

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Known:
        ours = [plain(o.configuration) for o in observations]
        gangs = [c for c in ours if not c.is_one_machine]
        return cls(
            count=len({c for c in ours}),
            names={
                name: frozenset(getattr(c, name) for c in (gangs if name == "network" else ours))
                for name in NAMES
            },
            conditions={name: frozenset(getattr(c, name) for c in gangs) for name in CONDITIONS},
        )

    def why_unknown(self, configuration: Configuration) -> str | None:
        """Say why nothing can be said about the configuration, or None where something can."""
        ours = plain(configuration)
        if self.count < MIN_OBSERVATIONS:
            return f"only {self.count} configurations were measured"
        for name in NAMES:
            value = getattr(ours, name)
            if value in self.names[name] or (name == "network" and ours.is_one_machine):
                continue
            if name == "network" and not self.names[name]:
                return "only single machines were measured"
            shown = getattr(value, "value", value)
            return f"{name}: nothing was measured with {'none' if shown is None else repr(shown)}"
        if ours.is_one_machine:
            return None
        for name, seen in self.conditions.items():
            if len(seen) == 1 and getattr(ours, name) not in seen:
                return f"{name}: measured at {next(iter(seen))} only, so its influence is not known"
        return None


def plain(configuration: Configuration) -> Configuration:
    """Return the configuration without what cannot matter to it: one machine has no network."""
    return configuration.without_network() if configuration.is_one_machine else configuration


def column(configurations: Iterable[Configuration], name: str) -> NDArray[np.float64]:
    """Return one number of each configuration, in base units; unlimited bandwidth is infinite."""
    import numpy as np

    values = (getattr(c, name) for c in configurations)
    return np.array([np.inf if v is None else v for v in values], dtype=float)


def amounts(configurations: Sequence[Configuration], condition: str) -> NDArray[np.float64]:
    """Return how much of a condition each has; of the bandwidth, seconds per byte: 0 is no limit.

    One machine has none of any.
    """
    import numpy as np

    values = column(configurations, condition)
    if condition == "bandwidth_bytes_per_s":
        values = 1 / values
    return np.where([c.is_one_machine for c in configurations], 0.0, values)
