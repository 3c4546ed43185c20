"""Describes a configuration in a few words, leaving out usual values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farm.configuration.axes import AXES, AXES_BY_NAME, PROFILE_AXES
from farm.configuration.axis import Axis, AxisKind, Value


def network_words(values: Mapping[str, Value]) -> str:
    """Describe the requested network. `values`: of every axis, by its field."""
    axes = [axis for axis in PROFILE_AXES if not axis.is_left_out(values[axis.field])]
    if not axes:
        return "untouched"
    delay = AXES_BY_NAME["one_way_delay_ms"]
    return ", ".join(_phrases([delay, *(axis for axis in axes if axis is not delay)], values))


def network_measured(row: Any) -> str:
    """Describe the network of a stored measurement."""
    return network_words({axis.field: axis.value_measured(row) for axis in PROFILE_AXES})


def setup_words(values: Mapping[str, Value]) -> list[str]:
    """Describe the unusual part of a strategy's set-up. `values`: of axes, by their fields."""
    axes = [
        axis
        for axis in AXES
        if axis.kind in (AxisKind.SETUP, AxisKind.LINK)
        and axis.field in values
        and not axis.is_left_out(values[axis.field])
    ]
    return _phrases(axes, values)


def _phrases(axes: Sequence[Axis], values: Mapping[str, Value]) -> list[str]:
    found: list[str] = []
    for axis in axes:
        phrase = axis.phrase_of(values[axis.field])
        if axis.continues and found:
            found[-1] += f" {phrase}"
        else:
            found.append(phrase)
    return found
