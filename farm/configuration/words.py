"""Says a configuration in words, in short: what is as usual is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farm.configuration.axes import AXES, AXES_BY_NAME, PROFILE_AXES
from farm.configuration.axis import Axis, AxisKind, Value


def network_words(values: Mapping[str, Value]) -> str:
    """Say what was asked of the network. `values`: of every axis, by its field."""
    said = [axis for axis in PROFILE_AXES if not axis.is_left_out(values[axis.field])]
    if not said:
        return "untouched"
    delay = AXES_BY_NAME["one_way_delay_ms"]
    return ", ".join(_phrases([delay, *(axis for axis in said if axis is not delay)], values))


def network_measured(row: Any) -> str:
    """Say the same of a stored measurement."""
    return network_words({axis.field: axis.value_measured(row) for axis in PROFILE_AXES})


def setup_words(values: Mapping[str, Value]) -> list[str]:
    """Say how a strategy is set up, but for what is usual. `values`: of axes, by their fields."""
    said = [
        axis
        for axis in AXES
        if axis.kind in (AxisKind.SETUP, AxisKind.LINK)
        and axis.field in values
        and not axis.is_left_out(values[axis.field])
    ]
    return _phrases(said, values)


def _phrases(axes: Sequence[Axis], values: Mapping[str, Value]) -> list[str]:
    found: list[str] = []
    for axis in axes:
        phrase = axis.phrase_of(values[axis.field])
        if axis.continues and found:
            found[-1] += f" {phrase}"
        else:
            found.append(phrase)
    return found
