"""What the cells of a sweep differ in: the axes one may look along."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from farm.core.spec import BatchSplit, OperatorPlacement
from farm.figures.cell_configuration import CellConfiguration
from farm.figures.display import bit_rate, count, duration, percent

Value = str | int | float | None

# What a line on a cell that was left out does not say, see `farm.core.sweep_cell.shown`.
_NEVER_SHOWN = frozenset({"training_pass", "emulator", "length", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellAxis:
    """One thing that cells may differ in. `name` is that of the sweep file, and of addresses.

    There is one of each: they are told apart as objects, which is asked for each of many cells.
    `attribute`: of a configuration. `key` writes a value for an address, `write` for people.
    `is_of_network`: one machine is the same at every value of it. `is_number`: charts may be drawn
    along it. `unsaid`: the values that go without saying in a name.
    """

    name: str
    title: str
    attribute: str
    write: Callable[[Value], str]
    key: Callable[[Value], str]
    is_of_network: bool = False
    is_number: bool = False
    unsaid: frozenset[Value] = frozenset()

    def read(self, configuration: CellConfiguration) -> Value:
        """Return the value of a configuration."""
        value: Value = getattr(configuration, self.attribute)
        return value

    def is_named(self, words: Mapping[str, str], value: Value) -> bool:
        """Whether a cell written by `farm.core.sweep_cell.shown` has that value.

        What it leaves out is as always; what it never writes may be anything.
        """
        name = "network" if self.attribute == "interface" else self.attribute
        if self.attribute in _NEVER_SHOWN:
            return True
        text = words.get(name)
        if text is None:
            return value in (None, 0, "") or value in self.unsaid
        return text == (value if isinstance(value, str) else f"{value:g}")

    def named(self, value: Value) -> str:
        """Write a value so that it says what it is of, as in the name of a line."""
        text = self.write(value)
        return text if isinstance(value, str) else f"{self.title.lower()} {text}"


def named_together(axes: Sequence[CellAxis], values: Sequence[Value]) -> str:
    """Name a place on some axes by what does not go without saying."""
    both = zip(axes, values, strict=True)
    return ", ".join(axis.named(value) for axis, value in both if value not in axis.unsaid)


def places_of(
    configurations: Sequence[CellConfiguration],
) -> tuple[Sequence[CellAxis], Sequence[tuple[Value, ...]], Mapping[str, Sequence[Value]]]:
    """Return the axes on which they differ, where each stands on them, and by axis the values."""
    columns = {
        axis: list(map(operator.attrgetter(axis.attribute), configurations)) for axis in AXES
    }
    values = {axis: set(column) for axis, column in columns.items()}
    axes = [axis for axis in AXES if len(values[axis]) > 1]
    places: list[tuple[Value, ...]] = (
        list(zip(*(columns[axis] for axis in axes), strict=True))
        if axes
        else [() for _ in configurations]
    )
    return axes, places, {axis.name: sorted(values[axis], key=order) for axis in axes}


def order(value: Value) -> tuple[int, float, str]:
    """Sort what is not limited or not named before numbers, and numbers before names."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")


def _text(value: Value) -> str:
    return "any" if value in (None, "") else str(value)


def _or_none(value: Value) -> str:
    return "none" if value is None else str(value)


def _training_pass(value: Value) -> str:
    return _text(value).replace("_", " + ")


def _network(value: Value) -> str:
    return "usual" if value is None else str(value)


def _spoken(value: Value) -> str:
    return _or_none(value).replace("_", " ")


def _whole(value: Value) -> str:
    return count(cast(float, value))


def _plain(factor: float) -> Callable[[Value], str]:
    """Return what writes a number in the unit of the sweep file, None as unlimited."""

    def write(value: Value) -> str:
        return "unlimited" if value is None else f"{float(value) * factor:.9g}"

    return write


def _one_way(value: Value) -> str:
    return duration(cast(float, value))


def _capacity(value: Value) -> str:
    return "unlimited" if value is None else bit_rate(float(value))


def _lost(value: Value) -> str:
    return percent(cast(float, value), 2)


_COUNT = _plain(1.0)

# Those that people compare most come first: pages begin with the first that a sweep varies.
AXES: tuple[CellAxis, ...] = (
    CellAxis(
        name="world_size",
        title="World size",
        attribute="world_size",
        write=_whole,
        key=_COUNT,
        is_number=True,
    ),
    CellAxis(
        name="global_batch_size",
        title="Batch",
        attribute="global_batch_size",
        write=_whole,
        key=_COUNT,
        is_number=True,
    ),
    CellAxis(
        name="one_way_delay_ms",
        title="Delay",
        attribute="one_way_delay_s",
        write=_one_way,
        key=_plain(1e3),
        is_of_network=True,
        is_number=True,
    ),
    CellAxis(
        name="bandwidth_mbit_per_s",
        title="Bandwidth",
        attribute="bandwidth_bytes_per_s",
        write=_capacity,
        key=_plain(8e-6),
        is_of_network=True,
        is_number=True,
    ),
    CellAxis(
        name="packet_loss_percent",
        title="Packet loss",
        attribute="packet_loss_ratio",
        write=_lost,
        key=_plain(100.0),
        is_of_network=True,
        is_number=True,
    ),
    CellAxis(
        name="jitter_ms",
        title="Jitter",
        attribute="jitter_s",
        write=_one_way,
        key=_plain(1e3),
        is_of_network=True,
        is_number=True,
    ),
    CellAxis(
        name="strategy",
        title="Strategy",
        attribute="strategy",
        write=_text,
        key=_text,
    ),
    CellAxis(name="model", title="Model", attribute="model", write=_text, key=_text),
    CellAxis(name="dataset", title="Data set", attribute="dataset", write=_text, key=_text),
    CellAxis(
        name="pass",
        title="Pass",
        attribute="training_pass",
        write=_training_pass,
        key=_text,
    ),
    CellAxis(
        name="server_count",
        title="Servers",
        attribute="server_count",
        write=_whole,
        key=_COUNT,
        is_number=True,
        unsaid=frozenset({0}),
    ),
    CellAxis(
        name="server_placement",
        title="Servers are",
        attribute="server_placement",
        write=_or_none,
        key=_or_none,
        unsaid=frozenset({None}),
    ),
    CellAxis(
        name="replicas_per_rank",
        title="Replicas per rank",
        attribute="replicas_per_rank",
        write=_whole,
        key=_COUNT,
        is_number=True,
        unsaid=frozenset({1}),
    ),
    CellAxis(
        name="steps_between_averages",
        title="Steps between averages",
        attribute="steps_between_averages",
        write=_whole,
        key=_COUNT,
        is_number=True,
        unsaid=frozenset({1}),
    ),
    CellAxis(
        name="placement",
        title="Placement",
        attribute="placement",
        write=_text,
        key=_text,
        unsaid=frozenset({OperatorPlacement.SOFT.value}),
    ),
    CellAxis(
        name="batch_split",
        title="Batch split",
        attribute="batch_split",
        write=_spoken,
        key=_text,
        unsaid=frozenset({BatchSplit.EVEN.value}),
    ),
    CellAxis(
        name="network",
        title="Network",
        attribute="interface",
        write=_network,
        key=_text,
        is_of_network=True,
    ),
    CellAxis(
        name="emulator",
        title="Emulator",
        attribute="emulator",
        write=_text,
        key=_text,
        is_of_network=True,
    ),
    CellAxis(name="length", title="Length", attribute="length", write=_text, key=_text),
    CellAxis(name="labels", title="Labels", attribute="labels", write=_text, key=_text),
)
STRATEGY = next(axis for axis in AXES if axis.name == "strategy")
LENGTH = next(axis for axis in AXES if axis.name == "length")
