"""The table of what was measured: one line a cell, over all its repetitions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from farm.cli import cells
from farm.cli.output import MISSING, Column, print_table, table_width, terminal_width
from farm.core.measurement import OK, quantile, scaling_efficiency_ratio
from farm.core.scaling import baselines, workload
from farm.core.spec import TrainingPass
from farm.errors import InvalidSpec
from farm.registry import strategy

if TYPE_CHECKING:
    from farm.store.result_tables import MeasurementRow

COLUMNS = (
    Column("batch", is_right=True),
    Column("strategy"),
    Column("world size", is_right=True),
    Column("runs", is_right=True),
    Column("step time", is_right=True),
    Column("examples/s", is_right=True),
    Column("efficiency", is_right=True),
    Column("CPU", is_right=True),
    Column("memory", is_right=True),
    Column("rx", is_right=True),
    Column("tx", is_right=True),
    Column("accuracy", is_right=True),
    Column("bytes/step", is_right=True),
    Column("vs theory", is_right=True),
)
_FINGERPRINT_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """Medians over the successful repetitions of one configuration on one kind of hardware.

    `step_time_spread_s` is the median of the repetitions' interquartile ranges: how much steps
    differ within a run. `expected_bytes_per_step` is what the strategy's theory says one rank
    sends. `scaling_efficiency_ratio` is strong: against one rank, the same global batch size.
    """

    model: str | None
    dataset: str | None
    training_pass: str
    strategy: str | None
    world_size: int
    server_count: int
    global_batch_size: int
    epochs: int | None
    one_way_delay_s: float
    jitter_s: float
    packet_loss_ratio: float
    bandwidth_bytes_per_s: float | None
    fingerprint: str | None
    run_count: int
    step_time_s: float | None
    step_time_spread_s: float | None
    throughput_examples_per_s: float | None
    scaling_efficiency_ratio: float | None
    cpu_ratio: float | None
    resident_bytes: float | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None
    accuracy: float | None
    sent_bytes_per_step: float | None
    expected_bytes_per_step: float | None


def _bandwidth(cell: MeasuredCell) -> str:
    return cells.size(cell.bandwidth_bytes_per_s, per="/s")


# What most sweeps do not vary: each gets a column only where the cells differ in it.
_DISTINCTIONS: tuple[tuple[Column, Callable[[MeasuredCell], str]], ...] = (
    (Column("model"), lambda cell: cells.text(cell.model)),
    (Column("dataset"), lambda cell: cells.text(cell.dataset)),
    (Column("pass"), lambda cell: cell.training_pass),
    (Column("epochs", is_right=True), lambda cell: cells.text(cell.epochs)),
    (Column("servers", is_right=True), lambda cell: str(cell.server_count)),
    (Column("delay", is_right=True), lambda cell: cells.duration(cell.one_way_delay_s)),
    (Column("jitter", is_right=True), lambda cell: cells.duration(cell.jitter_s)),
    (Column("loss", is_right=True), lambda cell: cells.percent(cell.packet_loss_ratio, decimals=1)),
    (Column("bandwidth", is_right=True), _bandwidth),
    (Column("hardware"), lambda cell: cells.text(cell.fingerprint)[:_FINGERPRINT_SHOWN]),
)


def measured_cells(rows: Sequence[MeasurementRow]) -> list[MeasuredCell]:
    """Group successful measurements into cells, by batch size, strategy and world size."""
    successes = sorted((row for row in rows if row.status == OK), key=_key)
    groups = [list(group) for _, group in groupby(successes, key=_key)]
    alone = baselines(successes)
    return [_cell(group, alone.get(workload(group[0]))) for group in groups]


def print_cells(measured: Sequence[MeasuredCell]) -> None:
    """Print the table; turned by a quarter where the terminal is too narrow for it."""
    columns, rows = table(measured)
    if sys.stdout.isatty() and table_width(columns, rows) > terminal_width():
        # A few cells fit where fourteen columns do not.
        turned = [list(line) for line in zip(*rows, strict=True)]
        titles = [Column(text, is_right=True) for text in turned[0]]
        names = [[column.title] for column in columns[1:]]
        rows = [name + line for name, line in zip(names, turned[1:], strict=True)]
        columns = [Column(columns[0].title), *titles]
    print_table(columns, rows)


def table(measured: Sequence[MeasuredCell]) -> tuple[list[Column], list[list[str]]]:
    """Return columns and rows, with a column in front for whatever else tells cells apart."""
    columns, rows = list(COLUMNS), table_rows(measured)
    for column, write in reversed(_DISTINCTIONS):
        texts = [write(cell) for cell in measured]
        if len(set(texts)) > 1:
            columns.insert(0, column)
            rows = [[text, *row] for text, row in zip(texts, rows, strict=True)]
    return columns, rows


def table_rows(measured: Sequence[MeasuredCell]) -> list[list[str]]:
    """Write cells as texts under `COLUMNS`."""
    return [
        [
            str(cell.global_batch_size),
            cells.text(cell.strategy),
            str(cell.world_size),
            str(cell.run_count),
            cells.spread(cell.step_time_s, cell.step_time_spread_s),
            cells.number(cell.throughput_examples_per_s),
            cells.percent(cell.scaling_efficiency_ratio),
            cells.percent(cell.cpu_ratio),
            cells.size(cell.resident_bytes),
            cells.size(cell.net_rx_bytes_per_s, per="/s"),
            cells.size(cell.net_tx_bytes_per_s, per="/s"),
            cells.percent(cell.accuracy, decimals=1),
            cells.size(cell.sent_bytes_per_step),
            _deviation(cell),
        ]
        for cell in measured
    ]


def _key(row: MeasurementRow) -> tuple[object, ...]:
    return (
        row.model or "",
        row.dataset or "",
        row.training_pass,
        row.one_way_delay_s,
        row.jitter_s,
        row.packet_loss_ratio,
        row.bandwidth_bytes_per_s or math.inf,
        row.fingerprint or "",
        row.epochs or 0,
        row.global_batch_size,
        row.world_size,
        row.server_count,
        row.strategy or "",
    )


def _cell(group: Sequence[MeasurementRow], single_examples_per_s: float | None) -> MeasuredCell:
    first = group[0]
    throughput = _median(group, "throughput_examples_per_s")
    return MeasuredCell(
        model=first.model,
        dataset=first.dataset,
        training_pass=first.training_pass,
        strategy=first.strategy,
        world_size=first.world_size,
        server_count=first.server_count,
        global_batch_size=first.global_batch_size,
        epochs=first.epochs,
        one_way_delay_s=first.one_way_delay_s,
        jitter_s=first.jitter_s,
        packet_loss_ratio=first.packet_loss_ratio,
        bandwidth_bytes_per_s=first.bandwidth_bytes_per_s,
        fingerprint=first.fingerprint,
        run_count=len(group),
        step_time_s=_median(group, "step_time_s"),
        step_time_spread_s=_median(group, "step_time_spread_s"),
        throughput_examples_per_s=throughput,
        scaling_efficiency_ratio=_efficiency(throughput, first.world_size, single_examples_per_s),
        cpu_ratio=_median(group, "cpu_ratio"),
        resident_bytes=_median(group, "resident_bytes"),
        net_rx_bytes_per_s=_median(group, "net_rx_bytes_per_s"),
        net_tx_bytes_per_s=_median(group, "net_tx_bytes_per_s"),
        accuracy=_median(group, "accuracy"),
        sent_bytes_per_step=_median(group, "sent_bytes_per_step"),
        expected_bytes_per_step=_expected_bytes_per_step(first),
    )


def _efficiency(
    throughput_examples_per_s: float | None, world_size: int, single_examples_per_s: float | None
) -> float | None:
    if throughput_examples_per_s is None or not single_examples_per_s:
        return None
    return scaling_efficiency_ratio(
        throughput_examples_per_s=throughput_examples_per_s,
        world_size=world_size,
        single_examples_per_s=single_examples_per_s,
    )


def _expected_bytes_per_step(row: MeasurementRow) -> float | None:
    """Ask the strategy; None where nothing is exchanged or this program does not know it."""
    is_training = row.training_pass == TrainingPass.FORWARD_BACKWARD.value
    if row.strategy is None or row.gradient_bytes is None or not is_training:
        return None
    try:
        described = strategy(row.strategy)
    except InvalidSpec:
        return None
    return described.traffic(row.world_size, row.gradient_bytes).bytes


def _median(group: Sequence[MeasurementRow], column: str) -> float | None:
    known = sorted(value for row in group if (value := getattr(row, column)) is not None)
    return quantile(known, 0.5) if known else None


def _deviation(cell: MeasuredCell) -> str:
    if not cell.expected_bytes_per_step or cell.sent_bytes_per_step is None:
        return MISSING
    return f"{(cell.sent_bytes_per_step / cell.expected_bytes_per_step - 1) * 100:+.1f} %"
