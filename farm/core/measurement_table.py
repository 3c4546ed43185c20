"""The columns of the measurement table, which `farm export` writes and `farm import table` reads.

Each is declared here once. The order of a file, its types, the checks of columns that are only
passed along, and the table in docs/importing.md follow from it (`python -m tests.document_tables`).
How an imported cell is read into base units is in `farm.importers.columns`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from farm.core.axes import AXES, Axis, AxisKind
from farm.core.fields import Amount, Name, OneOf, Whole


class CellKind(enum.Enum):
    """What stands in a column."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAGS = "list"  # of objects; CSV has it as JSON


FLAG_FIELDS = ("kind", "message", "value")


class Source(enum.Enum):
    """Where an export has a column from."""

    MEASUREMENT = "measurement"  # the stored column of the name `field`
    SPEC = "spec"  # what the job was asked to do, under that name


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """`unit` is the file's, `field` the stored name, and stored values are multiplied by `factor`.

    `is_imported` False: an import checks it, up to `most`, and leaves it out. `if_empty`: what an
    import takes an empty cell for.
    """

    name: str
    kind: CellKind
    meaning: str
    unit: str = ""
    field: str = ""
    factor: float = 1.0
    source: Source = Source.MEASUREMENT
    is_imported: bool = True
    most: float | None = None
    if_empty: str = "not known"

    @property
    def stored(self) -> str:
        """The name under which the store has it."""
        return self.field or self.name


def _text(name: str, meaning: str, *, if_empty: str = "not known") -> TableColumn:
    return TableColumn(name=name, kind=CellKind.TEXT, meaning=meaning, if_empty=if_empty)


def _whole(name: str, meaning: str, *, if_empty: str = "not known") -> TableColumn:
    return TableColumn(name=name, kind=CellKind.WHOLE, meaning=meaning, if_empty=if_empty)


def _number(name: str, meaning: str, *, unit: str = "", if_empty: str = "not known") -> TableColumn:
    return TableColumn(
        name=name, kind=CellKind.NUMBER, meaning=meaning, unit=unit, if_empty=if_empty
    )


def _told(
    name: str,
    meaning: str,
    *,
    unit: str = "",
    kind: CellKind = CellKind.NUMBER,
    source: Source = Source.MEASUREMENT,
    most: float | None = None,
) -> TableColumn:
    """Declare what an export tells and an import only checks."""
    return TableColumn(
        name=name,
        kind=kind,
        meaning=meaning,
        unit=unit,
        source=source,
        is_imported=False,
        most=most,
        if_empty="",
    )


# What a measurement may have beside what a sweep file may ask for.
_IN_TABLES = {
    "placement": "; in imports any text",
    "network": "; empty: the usual one",
}


def _of_axis(axis: Axis) -> TableColumn:
    kinds = {Amount: CellKind.NUMBER, Whole: CellKind.WHOLE}
    return TableColumn(
        name=axis.name,
        kind=kinds.get(type(axis.type), CellKind.TEXT),
        meaning=axis.explained + _IN_TABLES.get(axis.name, ""),
        unit=axis.unit,
        field=axis.stored,
        factor=axis.type.per_base if isinstance(axis.type, Amount) else 1.0,
        if_empty=axis.if_empty or _if_empty(axis),
    )


def _if_empty(axis: Axis) -> str:
    if axis.is_required and not isinstance(axis.type, Name):
        return "refused"
    value = axis.value_in({})
    if value is None and axis.kind is not AxisKind.PROFILE:
        return "not known"
    text = axis.address(value)
    return f"`{text}`" if isinstance(axis.type, OneOf) else text


MEASUREMENT_TABLE: tuple[TableColumn, ...] = (
    *map(_of_axis, AXES),
    _text("framework", "TensorFlow or PyTorch, with its version"),
    _text("instance_type", "label of the agents, if they have one"),
    _number(
        "step_time_s",
        "median of the timed steps",
        unit="s",
        if_empty="`time_per_epoch_s` over `steps_per_epoch`",
    ),
    _number("step_time_spread_s", "interquartile range of the timed steps", unit="s"),
    _whole("steps_per_epoch", "steps of one epoch"),
    _number("time_per_epoch_s", "time of one epoch", unit="s"),
    _whole("epochs", "epochs that were trained; empty where steps were counted"),
    _number("accuracy", "on the test data at the end, from 0 to 1"),
    _told("idle_ratio", "share of a step in which a rank computes nothing, mean", most=1),
    _told("push_s", "of a step, for sending; mean over the ranks", unit="s"),
    _told("pull_s", "of a step, for waiting and receiving; mean over the ranks", unit="s"),
    _told("update_count", "updates of the weights in the timed steps", kind=CellKind.WHOLE),
    _told("staleness_mean", "updates by others between a rank's reading and its update, mean"),
    _told("staleness_max", "the most of these", kind=CellKind.WHOLE),
    _told("received_bytes_per_step", "one rank's, mean over the ranks", unit="bytes"),
    _text("status", "`ok`, or why there is no time, such as `out_of_memory`", if_empty="`ok`"),
    _whole("repetition", "of this configuration, from 0", if_empty="counted in order"),
    _text(
        "fingerprint",
        "names the kind of hardware and software; kinds are never pooled",
        if_empty="one kind",
    ),
    _told("job_id", "the job that measured it", kind=CellKind.WHOLE),
    _told("seed", "of the job", kind=CellKind.WHOLE, source=Source.SPEC),
    _told(
        "steps",
        "steps that the job was asked to time; empty where epochs were counted",
        kind=CellKind.WHOLE,
        source=Source.SPEC,
    ),
    _told("timed_step_count", "steps that the step time rests on", kind=CellKind.WHOLE),
    _told("throughput_examples_per_s", "of the whole gang", unit="examples/s"),
    _told("cpu_ratio", "busy share of the agents' cores, mean over ranks and seconds"),
    _told(
        "resident_bytes",
        "memory of the trainers, of the rank with most",
        unit="bytes",
        kind=CellKind.WHOLE,
    ),
    _told("net_rx_bytes_per_s", "received, mean over ranks and seconds", unit="bytes/s"),
    _told("net_tx_bytes_per_s", "sent, mean over ranks and seconds", unit="bytes/s"),
    _told("sent_bytes_per_step", "one rank's, mean over the ranks", unit="bytes"),
    TableColumn(
        name="flags",
        kind=CellKind.FLAGS,
        meaning="what disturbed it, each with `kind`, `message` and `value`, by how much, where "
        "that is known; `[]`: nothing was seen",
        if_empty="none",
    ),
)
