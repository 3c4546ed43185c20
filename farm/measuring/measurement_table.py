"""The columns of the measurement table, which `farm export` writes and `farm import table` reads.

Each is declared here once. The order of a file, its types, the checks of columns that are passed on
unchanged, and the table in docs/importing.md are derived from the declarations (`python -m
tests.document_tables`). `farm.importers.columns` converts imported cells to base units.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis, AxisKind
from farm.measuring.quantities import QUANTITIES, Quantity
from farm.values.fields import Amount, Boolean, Name, WholeNumber


class CellKind(enum.Enum):
    """The kind of values in a column."""

    TEXT = "text"
    BOOLEAN = "true or false"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAGS = "list"  # of objects; CSV has it as JSON


FLAG_FIELDS = ("kind", "message", "value")


class ColumnSource(enum.Enum):
    """The source of a column in an export."""

    MEASUREMENT = "measurement"  # the stored column of the name `field`
    QUANTITY = "quantity"  # what was measured, under that name
    SPEC = "spec"  # what the job was asked to do, under that name
    HARDWARE = "hardware"  # what the agents of the ranks had


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """`unit` is the file's, `field` the stored name, and stored values are multiplied by `factor`.

    `is_imported` False: an import checks it, and only keeps it beside the measurement. `least` and
    `most`: that it takes. `if_empty`: what it takes an empty cell for.
    """

    name: str
    kind: CellKind
    meaning: str
    unit: str = ""
    field: str = ""
    factor: float = 1.0
    source: ColumnSource = ColumnSource.MEASUREMENT
    is_imported: bool = True
    least: float = 0
    most: float | None = None
    if_empty: str = "not known"

    @property
    def stored(self) -> str:
        """The name under which the store has it."""
        return self.field or self.name


def _text(name: str, meaning: str, *, if_empty: str = "not known") -> TableColumn:
    return TableColumn(name=name, kind=CellKind.TEXT, meaning=meaning, if_empty=if_empty)


def _export_column(
    name: str,
    meaning: str,
    *,
    kind: CellKind = CellKind.WHOLE,
    source: ColumnSource = ColumnSource.MEASUREMENT,
) -> TableColumn:
    """Declare what an export has and an import only checks."""
    return TableColumn(
        name=name,
        kind=kind,
        meaning=meaning,
        source=source,
        is_imported=False,
        if_empty="",
    )


def _of_axis(axis: Axis) -> TableColumn:
    kinds = {Amount: CellKind.NUMBER, WholeNumber: CellKind.WHOLE, Boolean: CellKind.BOOLEAN}
    # What a measurement may have beside what a sweep file may ask for.
    beside = "; in imports any text" if axis.is_free_in_imports else ""
    if axis.kind is AxisKind.LINK:
        beside = "; empty: the usual one"
    return TableColumn(
        name=axis.name,
        kind=kinds.get(type(axis.type), CellKind.TEXT),
        meaning=axis.explained + beside,
        unit=axis.unit,
        field=axis.stored,
        factor=axis.type.per_base if isinstance(axis.type, Amount) else 1.0,
        if_empty=axis.if_empty or _if_empty(axis),
    )


def _of_quantity(quantity: Quantity) -> TableColumn:
    return TableColumn(
        name=quantity.name,
        kind=CellKind.WHOLE if quantity.is_whole else CellKind.NUMBER,
        meaning=quantity.meaning,
        unit=quantity.unit,
        source=ColumnSource.QUANTITY,
        least=quantity.least,
        most=quantity.most,
        if_empty=quantity.if_empty,
    )


def _if_empty(axis: Axis) -> str:
    if axis.is_required and not isinstance(axis.type, Name):
        return "refused"
    value = axis.value_in({})
    if value is None and axis.kind is not AxisKind.PROFILE:
        return "not known"
    text = axis.address(value)
    return f"`{text}`" if axis.options else text


MEASUREMENT_TABLE: tuple[TableColumn, ...] = (
    *map(_of_axis, AXES),
    _text("framework", "TensorFlow or PyTorch, with its version"),
    _text("instance_type", "label of the agents, if they have one"),
    *map(_of_quantity, QUANTITIES),
    _text("status", "`ok`, or why there is no time, such as `out_of_memory`", if_empty="`ok`"),
    TableColumn(
        name="repetition",
        kind=CellKind.WHOLE,
        meaning="of this configuration, from 0",
        if_empty="counted in order",
    ),
    _text(
        "fingerprint",
        "names the kind of hardware and software; kinds are never pooled",
        if_empty="one kind",
    ),
    _export_column(
        "versions",
        "of benchfarm, Python, TensorFlow, the kernel and the GPUs' software, on all ranks",
        kind=CellKind.TEXT,
        source=ColumnSource.HARDWARE,
    ),
    _export_column("job_id", "the job that measured it"),
    _export_column("attempt_id", "the attempt of the job"),
    _export_column("seed", "of the job", source=ColumnSource.SPEC),
    _export_column(
        "steps",
        "steps that the job was asked to time; empty where epochs were counted",
        source=ColumnSource.SPEC,
    ),
    TableColumn(
        name="flags",
        kind=CellKind.FLAGS,
        meaning="what disturbed it, each with `kind`, `message` and `value`, by how much, where "
        "that is known; `[]`: nothing was seen",
        if_empty="none",
    ),
)
