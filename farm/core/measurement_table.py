"""The columns of the measurement table, which `farm export` writes and `farm import table` reads.

Each is declared here once. The order of a file, its types, the checks of columns that are only
passed along, and the table in docs/importing.md follow from it (`python -m tests.document_tables`).
How an imported cell is read into base units is in `farm.importers.columns`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


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


def _text(name: str, meaning: str, *, field: str = "", if_empty: str = "not known") -> TableColumn:
    return TableColumn(
        name=name, kind=CellKind.TEXT, meaning=meaning, field=field, if_empty=if_empty
    )


def _whole(name: str, meaning: str, *, if_empty: str = "not known") -> TableColumn:
    return TableColumn(name=name, kind=CellKind.WHOLE, meaning=meaning, if_empty=if_empty)


def _number(
    name: str,
    meaning: str,
    *,
    unit: str = "",
    field: str = "",
    factor: float = 1.0,
    if_empty: str = "not known",
) -> TableColumn:
    return TableColumn(
        name=name,
        kind=CellKind.NUMBER,
        meaning=meaning,
        unit=unit,
        field=field,
        factor=factor,
        if_empty=if_empty,
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


MEASUREMENT_TABLE: tuple[TableColumn, ...] = (
    _text("model", "name of the model"),
    _text("dataset", "name of the data set"),
    _text(
        "pass",
        "`forward` or `forward_backward`",
        field="training_pass",
        if_empty="`forward_backward`",
    ),
    _text("framework", "TensorFlow or PyTorch, with its version"),
    _text("strategy", "how the work is distributed"),
    _text("placement", "where operations without a named device run"),
    _text("network", "what made the delay, such as `tc_netem`; empty without a network profile"),
    _text("instance_type", "label of the agents, if they have one"),
    _whole(
        "world_size",
        "ranks that train; servers and a chief that does not train are extra",
        if_empty="refused",
    ),
    _whole("server_count", "parameter servers", if_empty="0"),
    _text("server_placement", "`collocated` with the ranks, or `apart`", if_empty="`apart`"),
    _whole("replicas_per_rank", "copies of the model on the devices of one rank", if_empty="1"),
    _whole(
        "steps_between_averages", "of ranks that average their weights now and then", if_empty="1"
    ),
    _text("batch_split", "`even`, or `by_speed` of the ranks", if_empty="`even`"),
    _whole(
        "global_batch_size",
        "examples in one step of the whole gang, at least one for each rank",
        if_empty="refused",
    ),
    _number(
        "one_way_delay_ms",
        "asked of the network",
        unit="ms",
        field="one_way_delay_s",
        factor=1000,
        if_empty="0",
    ),
    _number(
        "jitter_ms",
        "asked of the network",
        unit="ms",
        field="jitter_s",
        factor=1000,
        if_empty="0",
    ),
    _number(
        "bandwidth_mbit_per_s",
        "asked of the network; empty: not limited",
        unit="Mbit/s",
        field="bandwidth_bytes_per_s",
        factor=8e-6,
        if_empty="not limited",
    ),
    _number(
        "packet_loss_percent",
        "asked of the network",
        unit="%",
        field="packet_loss_ratio",
        factor=100,
        if_empty="0",
    ),
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
