"""Measurements made elsewhere, as an importer passes them to the store.

In base units, like everything inside. An impossible value never gets this far: a table that has
one is refused, and of a published study it is left out, with a flag that says what was printed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farm.configuration.axes import AXES
from farm.configuration.axis import AxisKind, Value
from farm.measuring.measurement import OK
from farm.measuring.noise import NoiseKind
from farm.measuring.quantities import ADVISED

# With so few steps an epoch and a step are nearly one quantity, of which medians are taken over
# different steps: one may come out above the other by chance.
_SHORT_EPOCH_STEPS = 2
_SHORT_EPOCH_SLACK = 1.1


class FlagKind(enum.StrEnum):
    """Why a printed value is not used."""

    IMPOSSIBLE = "impossible"  # nothing can be measured so
    CONTRADICTORY = "contradictory"  # it does not fit what is printed beside it


@dataclass(frozen=True, slots=True)
class ImportFlag:
    """Why a value is not used, or what disturbed it where it was measured.

    `value`: of a disturbance, by how much.
    """

    kind: FlagKind | NoiseKind
    message: str
    value: float | None = None

    @property
    def is_of_a_disturbance(self) -> bool:
        """Whether the measurement is used nevertheless."""
        return isinstance(self.kind, NoiseKind)


@dataclass(frozen=True, slots=True)
class ImpossibleValue:
    """A measured value that cannot be."""

    column: str
    value: float
    expected: str


# What a measurement has of an axis that its source does not name, by the name in the store. Of all
# others it is not known: what was trained, and how a strategy was set up but for its servers.
UNSAID: Mapping[str, Value] = {
    axis.stored: axis.value_in({})
    for axis in AXES
    if axis.kind is AxisKind.PROFILE
    or (axis.kind is AxisKind.WORKLOAD and not axis.is_required)
    or axis.name == "server_count"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurement:
    """One row of a source. Names are free text; None: the source does not say.

    `values`: of axes and quantities, by their names in the store, as far as the source has them.
    `source_key` is the identity of what the source has, so that the same is never stored twice.
    `row_number` counts the source's lines, its first one 1. `flags`: values left out as impossible,
    and what disturbed the measurement; `notes`: what is possible and yet doubtful; `printed`: what
    the source has, where it is more than these values.
    """

    source_key: str
    row_number: int
    values: Mapping[str, Any]
    framework: str | None = None
    instance_type: str | None = None
    fingerprint: str | None = None
    status: str = OK
    repetition: int = 0
    flags: tuple[ImportFlag, ...] = ()
    notes: tuple[str, ...] = ()
    printed: Mapping[str, object] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return the value of an axis or a quantity, by its name in the store."""
        return self.values.get(name, UNSAID.get(name))

    @property
    def throughput_examples_per_s(self) -> float | None:
        """Examples per second over the whole gang: global batch size / step time."""
        if self["step_time_s"] is None or self.status != OK:
            return None
        throughput: float = self["global_batch_size"] / self["step_time_s"]
        return throughput


# What a value without a unit is, and seconds by their name.
_NOUNS = {"": "ratio", "s": "number of seconds"}


def misfits(measured: Mapping[str, float | None]) -> list[ImpossibleValue]:
    """Return the values outside of their possible range; whole numbers are checked elsewhere.

    Of what advice is computed from; other quantities are not looked at.
    """
    found = []
    for quantity in ADVISED:
        value = measured.get(quantity.name)
        if value is None or quantity.is_whole:
            continue
        most = math.inf if quantity.most is None else quantity.most
        if not quantity.least <= value <= most:
            noun = _NOUNS.get(quantity.unit, f"number of {quantity.unit}")
            expected = f"a {noun} from {quantity.least:g} to {most:g}"
            found.append(ImpossibleValue(quantity.name, value, expected))
    step_time_s, time_per_epoch_s = measured.get("step_time_s"), measured.get("time_per_epoch_s")
    if not found and step_time_s is not None and time_per_epoch_s is not None:
        step_count = measured.get("steps_per_epoch")
        found += _too_long(step_time_s, step_count, time_per_epoch_s=time_per_epoch_s)
    return found


def _too_long(
    step_time_s: float, step_count: float | None, *, time_per_epoch_s: float
) -> list[ImpossibleValue]:
    """A step is part of its epoch, and half of the steps take the median or longer."""
    if step_count is None or step_count <= _SHORT_EPOCH_STEPS:
        slack = 1.0 if step_count is None else _SHORT_EPOCH_SLACK
        is_too_long = step_time_s > time_per_epoch_s * slack
        expected = f"at most time_per_epoch_s, {time_per_epoch_s:g}: a step is part of its epoch"
    else:
        most_s = 2 * time_per_epoch_s / step_count
        is_too_long = step_time_s > most_s
        expected = (
            f"at most 2 x time_per_epoch_s / steps_per_epoch, {most_s:.4g}: half of the steps take "
            "the median or longer"
        )
    return [ImpossibleValue("step_time_s", step_time_s, expected)] if is_too_long else []
