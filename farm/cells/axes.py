"""Finds the axes in which the cells of a sweep differ.

The parameters of a user's script are axes of the sweeps that name them. The model of such a cell is
the command without the parameters' values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from farm.cells.configuration import CellConfiguration
from farm.configuration.axes import AXES, AXES_BY_NAME, REQUIRED_AXES_IN_ORDER
from farm.configuration.axis import Axis, AxisKind, Value
from farm.configuration.scripts import parameters_of, without_parameters
from farm.configuration.sweep import CASE_OPTIONS_BY_NAME, TIME_LIMIT_S, WARMUP_STEPS
from farm.text.display import duration
from farm.values.fields import Amount, Name

EMULATOR = Axis(
    name="emulator",
    kind=AxisKind.LINK,
    type=Name(),
    title="Emulator",
    meaning="what emulates the network",
)
LENGTH = Axis(
    name="length",
    kind=AxisKind.CASE,
    type=Name(),
    title="Length",
    meaning="how long a job measures",
)
_WARMUP_OPTION = CASE_OPTIONS_BY_NAME["warmup_steps"]
WARMUP = Axis(
    name=_WARMUP_OPTION.name,
    field=_WARMUP_OPTION.field,
    kind=AxisKind.CASE,
    type=WARMUP_STEPS,
    title="Warm-up steps",
    meaning=_WARMUP_OPTION.meaning,
)
REPEAT = Axis(
    name="repeat",
    kind=AxisKind.CASE,
    type=Name(),
    title="Repeats data",
    meaning="whether a batch may be larger than the data set",
    write=lambda value: "yes" if value else "no",
)
TIME_LIMIT = Axis(
    name="time_limit_s",
    kind=AxisKind.CASE,
    type=TIME_LIMIT_S,
    title="Time limit",
    meaning="after which a training fails",
    write=lambda value: duration(cast(float | None, value)),
)
LABELS = Axis(
    name="labels",
    kind=AxisKind.CASE,
    type=Name(),
    title="Labels",
    meaning="which agents may serve a job",
)
# Those that people compare most come first: pages begin with the first that a sweep varies.
CELL_AXES: tuple[Axis, ...] = (
    *(axis for kind in AxisKind for axis in AXES if axis.kind is kind),
    *(EMULATOR, LENGTH, WARMUP, REPEAT, TIME_LIMIT, LABELS),
)
# Before the name of a parameter, which may be that of an axis of cells.
PARAMETER_PREFIX = "parameter."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CommandAxis(Axis):
    """A model, or the command of a script without the values of its parameters."""

    def value_of(self, configuration: Any) -> Value:
        return without_parameters(configuration["model"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ParameterAxis(Axis):
    """A parameter of scripts; cells of other models have None."""

    def value_of(self, configuration: Any) -> Value:
        text = parameters_of(configuration["model"]).get(self.name.removeprefix(PARAMETER_PREFIX))
        return text if text is None or not self.is_number else float(text)

    def named(self, value: Value) -> str:
        return f"{self.title} {self.text(value)}"


_COMMAND = _CommandAxis(
    name="model",
    kind=AxisKind.WORKLOAD,
    type=AXES_BY_NAME["model"].type,
    title=AXES_BY_NAME["model"].title,
    meaning=AXES_BY_NAME["model"].meaning,
)


@functools.lru_cache(maxsize=1024)
def _parameter(name: str, *, is_number: bool) -> Axis:
    number = Amount(unit="", noun="number", low=-math.inf, high=math.inf)
    return _ParameterAxis(
        name=f"{PARAMETER_PREFIX}{name}",
        kind=AxisKind.CASE,
        type=number if is_number else Name(),
        title=name,
        meaning="parameter of the script",
        none="none",
    )


def axes_of(configurations: Sequence[CellConfiguration]) -> Sequence[Axis]:
    """Return CELL_AXES, with those of the scripts' parameters beside the model."""
    values: dict[str, set[str]] = {}
    for model in sorted({configuration["model"] for configuration in configurations}):
        for name, text in parameters_of(model).items():
            values.setdefault(name, set()).add(text)
    if not values:
        return CELL_AXES
    parameters = [_parameter(name, is_number=_are_numbers(texts)) for name, texts in values.items()]
    model = CELL_AXES.index(AXES_BY_NAME["model"])
    return [*CELL_AXES[:model], *parameters, _COMMAND, *CELL_AXES[model + 1 :]]


def _are_numbers(texts: set[str]) -> bool:
    """Whether each is a number, and written unlike the rest: 1e-3 and 0.001 are two values."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return False
    written = {f"{number:.9g}" for number in numbers}  # as `Axis.address` has them
    return len(written) == len(texts) and all(map(math.isfinite, numbers))


def is_named(axis: Axis, words: Mapping[str, str], value: Value) -> bool:
    """Whether a cell that was left out has that value.

    `words`: what `farm.configuration.sweep_cell.shown` wrote of the cell, by the names of axes. It
    leaves out what is usual; what it never writes may be anything.
    """
    if axis not in AXES:
        return True
    text = words.get(axis.name)
    return axis.is_left_out(value) if text is None else text == axis.address(value)


def named_together(axes: Sequence[Axis], values: Sequence[Value]) -> str:
    """Name a set of axis values by those that are not usual, separated by commas."""
    both = zip(axes, values, strict=True)
    return ", ".join(axis.named(value) for axis, value in both if not axis.is_usual(value))


def places_of(
    configurations: Sequence[CellConfiguration],
) -> tuple[Sequence[Axis], Sequence[tuple[Value, ...]], Mapping[str, Sequence[Value]]]:
    """Return the axes that differ, each configuration's values on them, and each axis's values."""
    known = axes_of(configurations)
    columns = {axis: list(map(axis.value_of, configurations)) for axis in known}
    values = {axis: set(column) for axis, column in columns.items()}
    axes = [axis for axis in known if len(values[axis]) > 1]
    places: list[tuple[Value, ...]] = (
        list(zip(*(columns[axis] for axis in axes), strict=True))
        if axes
        else [() for _ in configurations]
    )
    return axes, places, {axis.name: sorted(values[axis], key=order) for axis in axes}


def order(value: Value) -> tuple[int, float, str]:
    """Sort key of a value: None first, then numbers, then names."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")


# These have columns in every table of cells, in this order.
COLUMN_AXES = tuple(AXES_BY_NAME[name] for name in ("global_batch_size", "strategy", "world_size"))
_IN_ORDER = (
    *REQUIRED_AXES_IN_ORDER,
    *(axis for axis in CELL_AXES if not axis.is_required and axis is not LENGTH),
)


def cell_sort_key(configuration: CellConfiguration) -> list[tuple[int, float, str]]:
    """Return a key that sorts cells as tables list them."""
    values = (axis.value_of(configuration) for axis in _IN_ORDER)
    return [order(value) for value in (*values, configuration.epochs, configuration.steps)]
