"""Parses a page's query string: which metric, axes and order of a sweep it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from farm.cells.axes import CELL_AXES, COLUMN_AXES, PARAMETER_PREFIX, order
from farm.cells.table import CellLine, SweepTable
from farm.configuration.axis import Axis, Value
from farm.errors import InvalidSpec
from farm.measuring.quantities import QUANTITIES_BY_NAME, SHOWN, Quantity
from farm.text.display import deviation, dollars, percent, plus_minus

_T = TypeVar("_T", "CellMetric", Axis)

FIXED = "at_"  # before the name of an axis: hold it at a value
OPTIONS = ("metric", "x", "y", "along", "by")
_QUERY = (*OPTIONS, "show", "sort", "cells", "page", *(f"{FIXED}{axis.name}" for axis in CELL_AXES))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMetric:
    """A value of a cell that can be mapped, and how it is written.

    `time_power`: it is proportional to the step time (1), to its inverse (-1), or to neither (0),
    which tells how uncertain it is.
    """

    name: str
    title: str
    read: Callable[[CellLine], float | None]
    write: Callable[[float | None], str]
    time_power: int = 1


def _of_quantity(quantity: Quantity) -> CellMetric:
    def read(line: CellLine) -> float | None:
        is_shown = not quantity.is_of_servers or line.configuration["server_count"]
        return line.median(quantity.name) if is_shown else None

    return CellMetric(
        name=quantity.metric or quantity.name,
        title=quantity.title,
        read=read,
        write=quantity.write,
        time_power=quantity.time_power,
    )


def _against_theory(metric: CellMetric) -> CellMetric:
    def read(line: CellLine) -> float | None:
        value, expected = metric.read(line), line.expected_bytes_per_step
        return value / expected - 1 if value is not None and expected else None

    return CellMetric(
        name=f"{metric.name}_against_theory",
        title=f"{metric.title.split()[0]} vs theory",
        read=read,
        write=deviation,
        time_power=0,
    )


STEP_TIME = _of_quantity(QUANTITIES_BY_NAME["step_time_s"])
_INTERVAL = CellMetric(
    name="interval",
    title="95 % interval",
    read=lambda c: c.statistics.half_width_ratio,
    write=plus_minus,
    time_power=0,
)
# What follows from a quantity of a cell, by the quantity that it stands beside.
_BESIDE: Mapping[str, CellMetric] = {
    "throughput_examples_per_s": CellMetric(
        name="efficiency",
        title="Scaling efficiency",
        read=lambda c: c.efficiency_ratio,
        write=percent,
        time_power=-1,
    ),
    "time_per_epoch_s": CellMetric(
        name="cost", title="Cost of an epoch", read=lambda c: c.cost_usd, write=dollars
    ),
    **{
        name: _against_theory(_of_quantity(QUANTITIES_BY_NAME[name]))
        for name in ("sent_bytes_per_step", "received_bytes_per_step")
    },
}
# Those with a column where some cell has a value.
_COLUMNS: tuple[CellMetric, ...] = tuple(
    metric
    for quantity in SHOWN
    if quantity.name != "step_time_s"
    for metric in (_of_quantity(quantity), _BESIDE.get(quantity.name))
    if metric is not None
)
CELL_METRICS: tuple[CellMetric, ...] = (STEP_TIME, *_COLUMNS, _INTERVAL)


def _of_axis(axis: Axis) -> Callable[[CellLine], Value]:
    return lambda line: axis.value_of(line.configuration)


# Columns of the table of cells by which it is put in order.
SORTS: Mapping[str, Callable[[CellLine], Value]] = {
    **{axis.name: _of_axis(axis) for axis in COLUMN_AXES},
    "repetition_count": lambda c: c.repetition_count,
    "epoch": lambda c: c.time_per_epoch_s,
    "state": lambda c: c.state.value,
    **{metric.name: metric.read for metric in CELL_METRICS},
}


def columns_of(lines: Sequence[CellLine]) -> list[CellMetric]:
    """Return the metrics, beside the step time, that some of these cells have."""
    return [one for one in _COLUMNS if any(one.read(line) is not None for line in lines)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`x`, `y`: axes of the heat map, None if the sweep varies too little; `along`: of charts.

    `by`: what tells bars, or lines, apart; None: what suits. `fixed`: the values that other axes
    are held at, by name; of the rest everything is shown. `given`: the parameters that were in the
    address, to keep them in links.
    """

    metric: CellMetric
    x: Axis | None
    y: Axis | None
    along: Axis | None
    by: Axis | None = None
    fixed: Mapping[str, Value] = field(default_factory=dict)
    sort: str | None = None
    is_descending: bool = False
    is_failed_only: bool = False
    given: Mapping[str, str] = field(default_factory=dict)

    def admitted(self, table: SweepTable) -> Iterable[tuple[CellLine, tuple[Value, ...]]]:
        """Return the cells at the fixed values, each with its place on the table's axes.

        One machine is at every value of the network's axes.
        """
        both = zip(table.lines, table.places, strict=True)
        fixed = [
            (position, self.fixed[axis.name], axis.is_of_network)
            for position, axis in enumerate(table.axes)
            if axis.name in self.fixed
        ]
        if not fixed:
            return both
        return (
            (line, place)
            for line, place in both
            if all(
                place[position] == value or (is_of_network and line.configuration.is_one_machine)
                for position, value, is_of_network in fixed
            )
        )

    def address(self, **changes: object) -> dict[str, str]:
        """Return the query of the same page with some parameters changed, or left out by None."""
        merged = {**self.given, **changes}
        return {name: str(value) for name, value in merged.items() if value is not None}


def query_names(given: Iterable[str]) -> tuple[str, ...]:
    """Return the permitted query parameters: the general ones, and a script's own among `given`."""
    return (*_QUERY, *(name for name in given if name.startswith(f"{FIXED}{PARAMETER_PREFIX}")))


def read_choice(args: Mapping[str, str], table: SweepTable) -> Choice:
    """Parse the choice; empty parameters, as forms send them, count as absent.

    Raises:
        InvalidSpec: a parameter names nothing that this sweep has.
    """
    known = query_names(args)
    given = {name: text for name, text in args.items() if text and name in known}
    fixed = _fixed(given, table)
    varying = table.axes
    free = [axis for axis in varying if axis.name not in fixed]
    x, y = _map_axes(given, varying, free)
    numbers = [axis for axis in varying if axis.is_number]
    first = next((axis for axis in numbers if axis in free), None)
    sort = given.get("sort", "").removeprefix("-") or None
    if sort == "run_count":  # its former name, in addresses that somebody kept, until 0.2.0
        sort = "repetition_count"
    if given.get("show", "failed") != "failed":
        raise InvalidSpec("show", given["show"], "failed, or nothing")
    if sort is not None and sort not in SORTS:
        raise InvalidSpec("sort", given["sort"], f"one of {', '.join(SORTS)}, or one after a -")
    return Choice(
        metric=_named("metric", given, CELL_METRICS) or CELL_METRICS[0],
        x=x,
        y=y,
        along=_named("along", given, numbers) or first,
        by=_named("by", given, varying),
        fixed=fixed,
        sort=sort,
        is_descending=given.get("sort", "").startswith("-"),
        is_failed_only=given.get("show") == "failed",
        given=given,
    )


def in_order(lines: Sequence[CellLine], choice: Choice) -> Sequence[CellLine]:
    """Return cells in the chosen order; unknown values come last either way."""
    if choice.sort is None:
        return lines
    read = SORTS[choice.sort]
    known = [line for line in lines if read(line) is not None]
    unknown = [line for line in lines if read(line) is None]
    # Equal ones stay as they are in both directions, so that turning round does not shuffle them.
    known.sort(key=lambda line: order(read(line)), reverse=choice.is_descending)
    return [*known, *unknown]


def _map_axes(
    given: Mapping[str, str], varying: Sequence[Axis], free: Sequence[Axis]
) -> tuple[Axis | None, Axis | None]:
    x, y = _named("x", given, varying), _named("y", given, varying)
    if x is not None and x is y:
        raise InvalidSpec("y", given["y"], "another axis than x")
    rest = iter([axis for axis in free if axis not in (x, y)])
    x = x or next(rest, None)
    return x, y or next(rest, None)


def _fixed(given: Mapping[str, str], table: SweepTable) -> dict[str, Value]:
    fixed: dict[str, Value] = {}
    axes = {f"{FIXED}{axis.name}": axis for axis in (*CELL_AXES, *table.axes)}
    for name, text in given.items():
        if not name.startswith(FIXED):
            continue
        if (axis := axes.get(name)) is None:
            raise InvalidSpec(name, text, _one_of([]))
        values = {axis.address(value): value for value in table.values.get(axis.name, ())}
        if text not in values:
            raise InvalidSpec(name, text, _one_of(list(values)))
        fixed[axis.name] = values[text]
    return fixed


def _named(name: str, given: Mapping[str, str], known: Sequence[_T]) -> _T | None:
    text = given.get(name)
    if text is None:
        return None
    for one in known:
        if one.name == text:
            return one
    raise InvalidSpec(name, text, _one_of([one.name for one in known]))


def _one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(names[:20])}" if names else "nothing: this sweep does not vary it"
