"""The features from which step times are predicted: names and numbers. Pure."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from farm.configuration.axes import AXES, PROFILE_AXES, STRATEGY
from farm.configuration.axis import AxisKind
from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.setup import USUAL_SETUP, Setup, published_name
from farm.registry import catalogue
from farm.text.plurals import counted

_WORKLOAD = tuple(axis.field for axis in AXES if axis.kind is AxisKind.WORKLOAD)
# What one machine depends on: it has nobody to exchange with.
_ALONE = (*_WORKLOAD, "framework", "instance_type")
# What one machine says nothing of to a gang.
_NAMES_OF_GANGS = (STRATEGY.field, "network")
# What is free text or a name, from the one that changes a step most to the one that changes it
# least: a child in this order is fitted near its parent.
NAMES = (*_ALONE, "setup", *_NAMES_OF_GANGS)
names_of = operator.attrgetter(*NAMES)  # the names of a configuration, in that order
names_of_one_machine = operator.attrgetter(*_ALONE)
# The conditions of a network of which less makes a step slower; of others more does.
LIMIT_CONDITIONS = frozenset(axis.field for axis in PROFILE_AXES if axis.is_limit)
# How a model's layers divide among more or fewer ranks follows no curve over the world size.
_OF_STAGES = frozenset(f.name for f in catalogue().strategies.values() if f.splits_layers)
# Fewer measurements say nothing that could be checked.
MIN_OBSERVATIONS = 3


@dataclass(frozen=True, slots=True)
class KnownConditions:
    """What occurs in the measurements: beyond these names and conditions nothing is guessed.

    `stages`: model, strategy and world size of pipelines.
    """

    count: int
    names: dict[str, frozenset[object]]
    names_of_gangs: dict[str, frozenset[object]]
    conditions: dict[str, frozenset[float | None]]
    stages: frozenset[tuple[str | None, str | None, int]]

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> KnownConditions:
        """Collect what occurs in these observations."""
        ours = [canonical(o.configuration) for o in observations]
        gangs = [c for c in ours if not c.is_one_machine]
        return cls(
            count=len({c for c in ours}),
            names={name: frozenset(getattr(c, name) for c in ours) for name in NAMES},
            names_of_gangs={
                name: frozenset(getattr(c, name) for c in gangs) for name in _NAMES_OF_GANGS
            },
            conditions={
                name: frozenset(_rounded(getattr(c, name)) for c in gangs) for name in CONDITIONS
            },
            stages=frozenset(_stages(c) for c in gangs if c.strategy in _OF_STAGES),
        )

    def why_unknown(self, configuration: Configuration) -> str | None:
        """Say why nothing can be said about the configuration, or None where something can."""
        ours = canonical(configuration)
        if self.count < MIN_OBSERVATIONS:
            return (
                f"only {counted(self.count, 'configuration was', 'configurations were')} measured"
            )
        for name in NAMES:
            if name == "network" and ours.is_one_machine:
                continue
            value = getattr(ours, name)
            if value not in self.names[name]:
                return f"{published_name(name)}: nothing was measured with {_shown(value)}"
        if ours.is_one_machine:
            return None
        for name, names in self.names_of_gangs.items():
            if getattr(ours, name) not in names:
                return f"{name}: only one machine was measured with {_shown(getattr(ours, name))}"
        if ours.strategy in _OF_STAGES and _stages(ours) not in self.stages:
            return (
                f"world_size: model {_shown(ours.model)} was not measured in {ours.world_size}"
                f" stages with {_shown(ours.strategy)}"
            )
        for name, seen in self.conditions.items():
            if len(seen) == 1 and _rounded(getattr(ours, name)) not in seen:
                return f"{name}: measured at {next(iter(seen))} only, so its influence is not known"
        return None


def _stages(of: Configuration) -> tuple[str | None, str | None, int]:
    return of.model, of.strategy, of.world_size


def _shown(value: object) -> str:
    value = value.text if isinstance(value, Setup) else getattr(value, "value", value)
    return "none" if value is None else repr(value)


def amount(condition: str, value: float) -> float:
    """Return how much of a condition there is: of a limit its inverse, so that 0 is no limit."""
    return 1 / value if condition in LIMIT_CONDITIONS else value


def rounded(value: float) -> float:
    """Return it without its last bits, in which equal values from a file may differ."""
    return float(f"{value:.9g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def canonical(configuration: Configuration) -> Configuration:
    """Return the configuration without what cannot matter to it: one machine has no network."""
    c = configuration
    # Asked far more often than a copy is needed, which takes ten times as long.
    if (c.network is None and c.is_untouched) or c.has_network:
        return c
    return c.without_network()


def without_names(configuration: Configuration) -> Configuration:
    """Return what is no name of it: equal where one value stands under several names."""
    return dataclasses.replace(
        canonical(configuration),
        model=None,
        dataset=None,
        framework=None,
        instance_type=None,
        setup=USUAL_SETUP,
        strategy=None,
        network=None,
    )
