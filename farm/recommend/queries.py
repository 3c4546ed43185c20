"""From what a query says to the configuration that it means. Pure.

A query names what it wants to name. The rest is what the measurements have in common; where they
differ, a guess could be of another strategy or network altogether, so the query has to say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farm.configuration.axes import SETUP_AXES
from farm.configuration.spec import OperatorPlacement, TrainingPass
from farm.recommend.configuration import Configuration, network_of
from farm.recommend.layout import layout_name

# What names a configuration, the general before the special: a name that is not given is looked
# for among the measurements that fit those before it.
_NAMES = (
    *("model", "dataset", "training_pass", "framework", "instance_type"),
    *("strategy", "placement", "network"),
)
_NOT_APPLICABLE = "n/a"  # as some studies print a placement
_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """`configuration` None goes with the reason; with a reason it is one that does not work."""

    configuration: Configuration | None
    unknown_because: str | None = None


def meant(given: Mapping[str, Any], known: Sequence[Configuration]) -> Meant:
    """Complete a query.

    `given`: values by the fields of a configuration, and of SETUP_AXES; `known`: what was
    measured.

    A pass that is not given is a whole training step, unless only the other was measured.
    """
    values = dict(given)
    fields = [axis.field for axis in SETUP_AXES if axis.field in values]
    settings = {field: values.pop(field) for field in fields}
    if values.get("training_pass") is not None:
        values["training_pass"] = TrainingPass(values["training_pass"])
    if settings:
        values["placement"] = layout_name(values.get("placement"), settings)
    # One machine has no network, and a gang is no guide to it.
    is_one_machine = values["world_size"] == 1 and not values.get("server_count")
    fitting = [c for c in known if c.is_one_machine is is_one_machine] or list(known)
    for name in _NAMES:
        if name == "network" and is_one_machine:
            values.pop(name, None)
            continue
        chosen = {getattr(c, name) for c in fitting}
        if name in values:
            values[name] = _as_known(name, values[name], chosen)
        elif len(chosen) > 1 and None not in chosen and TrainingPass.FORWARD_BACKWARD not in chosen:
            return Meant(configuration=None, unknown_because=_ambiguous(name, chosen))
        else:
            values[name] = _usual(chosen)
        fitting = [c for c in fitting if getattr(c, name) == values[name]] or fitting
    if values["training_pass"] is None:
        values["training_pass"] = TrainingPass.FORWARD_BACKWARD
    configuration = Configuration(**values)
    if configuration.is_one_machine:
        configuration = configuration.without_network()
    return Meant(configuration=configuration)


def _as_known(name: str, value: object, chosen: set[object]) -> object:
    if name == "network" and isinstance(value, str):
        value = network_of(value)
    if value in chosen or not isinstance(value, str):
        return value
    if value == _NOT_APPLICABLE:
        return None
    if name == "placement":
        # The farm's own soft placement is the usual one, and has no name.
        usual = value.removeprefix(OperatorPlacement.SOFT.value).removeprefix(", ") or None
        return usual if usual in chosen else value
    return value


def _usual(chosen: set[object]) -> object:
    if TrainingPass.FORWARD_BACKWARD in chosen:
        return TrainingPass.FORWARD_BACKWARD
    return next(iter(chosen)) if len(chosen) == 1 else None


def _ambiguous(name: str, chosen: set[object]) -> str:
    texts = sorted(str(getattr(value, "value", value)) for value in chosen)
    shown = ", ".join(texts[:_MOST_SHOWN]) + (", ..." if len(texts) > _MOST_SHOWN else "")
    column = "pass" if name == "training_pass" else name
    return f"{column}: not given, and measured with {shown}"
