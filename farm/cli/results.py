"""The table of what was measured: one line a cell, and below it what its signs mean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import click

from farm.cli.measured import MeasuredCell
from farm.cli.output import Column, print_table, table_width, terminal_width
from farm.core import display
from farm.core.axes import AXES, Axis
from farm.core.display import MISSING
from farm.core.measurement import STEP_TIME_NOTE
from farm.core.noise import disturbed_by
from farm.core.nouns import counted

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


def _value(axis: Axis, cell: MeasuredCell) -> str:
    """Write a name as a sweep file has it, and a number as pages do."""
    value = cell.values[axis.field]
    if value is None and not axis.is_number:
        return MISSING
    return axis.text(value) if axis.is_number else axis.address(value)


def _labels(cell: MeasuredCell) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted((cell.labels or {}).items())) or MISSING


_IN_COLUMNS = ("global_batch_size", "strategy", "world_size")
# What most sweeps do not vary: each gets a column only where the cells differ in it.
_DISTINCTIONS: tuple[tuple[Column, Callable[[MeasuredCell], str]], ...] = (
    *(
        (Column(axis.title.lower(), is_right=axis.is_number), partial(_value, axis))
        for axis in AXES
        if axis.name not in _IN_COLUMNS
    ),
    (Column("framework"), lambda cell: display.text(cell.framework)),
    (Column("steps", is_right=True), lambda cell: display.text(cell.steps)),
    (Column("epochs", is_right=True), lambda cell: display.text(cell.epochs)),
    (Column("warm-up steps", is_right=True), lambda cell: display.text(cell.warmup_step_count)),
    (Column("repeats data"), lambda cell: display.text(cell.repeat).lower()),
    (Column("time limit", is_right=True), lambda cell: display.duration(cell.time_limit_s)),
    (Column("emulator"), lambda cell: display.text(cell.emulator)),
    (Column("labels"), _labels),
    (Column("hardware"), lambda cell: display.text(cell.fingerprint)[:_FINGERPRINT_SHOWN]),
)
# What not every strategy tells: each gets a column where some cell has it.
_FURTHER: tuple[tuple[Column, Callable[[MeasuredCell], str]], ...] = (
    (Column("idle", is_right=True), lambda cell: display.percent(cell.idle_ratio)),
    (Column("push", is_right=True), lambda cell: display.duration(cell.push_s)),
    (Column("pull", is_right=True), lambda cell: display.duration(cell.pull_s)),
    (Column("updates", is_right=True), lambda cell: display.count(cell.update_count)),
    (Column("staleness", is_right=True), lambda cell: _staleness(cell)),
    (Column("received/step", is_right=True), lambda cell: _received(cell)),
    (Column("received vs theory", is_right=True), lambda cell: _received_deviation(cell)),
)


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
    for line in notes(measured):
        click.echo(line)


def notes(measured: Sequence[MeasuredCell]) -> list[str]:
    """Say below the table what its signs mean, as far as they occur in it."""
    lines = []
    if any(cell.half_width_ratio is not None for cell in measured):
        lines.append("±: 95 % interval of the median step time, over the runs")
    if any(_shows_steps(cell) for cell in measured):
        lines.append("in parentheses: the middle half of the steps within a run")
    if job_ids := sorted(job_id for cell in measured for job_id in cell.outlier_job_ids):
        named = ", ".join(str(job_id) for job_id in job_ids)
        lines.append(f"*: runs far from the others, counted all the same: job {named}")
    if measured:
        lines.append(STEP_TIME_NOTE)
    return [*lines, *_disturbed(measured)]


def _disturbed(measured: Sequence[MeasuredCell]) -> list[str]:
    disturbed = [one for cell in measured for one in cell.disturbed]
    if not disturbed:
        return []
    run_count = sum(cell.run_count + cell.set_aside_count for cell in measured)
    line = (
        f"!: {len(disturbed)} of {counted(run_count, 'run')} "
        f"{'was' if len(disturbed) == 1 else 'were'} disturbed, by {disturbed_by(disturbed)}"
    )
    if set_aside_count := sum(cell.set_aside_count for cell in measured):
        verb = "does" if set_aside_count == 1 else "do"
        line += (
            f"; {set_aside_count} of them {verb} not count, since undisturbed runs of the cell do"
        )
    return [line]


def table(measured: Sequence[MeasuredCell]) -> tuple[list[Column], list[list[str]]]:
    """Return columns and rows, with a column in front for whatever else tells cells apart."""
    columns, rows = list(COLUMNS), table_rows(measured)
    for column, texts in distinctions(measured):
        columns.insert(0, column)
        rows = [[text, *row] for text, row in zip(texts, rows, strict=True)]
    for column, write in _FURTHER:
        texts = [write(cell) for cell in measured]
        if set(texts) != {MISSING}:
            columns.append(column)
            rows = [[*row, text] for text, row in zip(texts, rows, strict=True)]
    return columns, rows


def distinctions(measured: Sequence[MeasuredCell]) -> list[tuple[Column, list[str]]]:
    """Return what else tells cells apart, the last column first, with a text for each cell."""
    found = [(column, [write(cell) for cell in measured]) for column, write in _DISTINCTIONS]
    return [(column, texts) for column, texts in reversed(found) if len(set(texts)) > 1]


def table_rows(measured: Sequence[MeasuredCell]) -> list[list[str]]:
    """Write cells as texts under `COLUMNS`."""
    return [
        [
            str(cell.values["global_batch_size"]),
            display.text(cell.values["strategy"]),
            str(cell.values["world_size"]),
            _runs(cell),
            _step_time(cell),
            display.decimal(cell.throughput_examples_per_s),
            display.percent(cell.scaling_efficiency_ratio),
            display.percent(cell.cpu_ratio),
            display.byte_count(cell.resident_bytes),
            display.byte_rate(cell.net_rx_bytes_per_s),
            display.byte_rate(cell.net_tx_bytes_per_s),
            display.percent(cell.accuracy, digits=1),
            display.byte_count(cell.sent_bytes_per_step),
            _deviation(cell),
        ]
        for cell in measured
    ]


def _runs(cell: MeasuredCell) -> str:
    target = "" if cell.target is None else f" {cell.target.value.replace('_', ' ')}"
    far = "*" if cell.outlier_job_ids else ""
    disturbed = "!" if len(cell.disturbed) > cell.set_aside_count else ""
    return f"{cell.run_count}{far}{disturbed}{target}"


def _shows_steps(cell: MeasuredCell) -> bool:
    return cell.half_width_ratio is None and cell.step_time_p25_s is not None


def _step_time(cell: MeasuredCell) -> str:
    """Two runs have no interval to speak of: then it is said how steps differ within one."""
    if not _shows_steps(cell):
        interval = display.plus_minus(cell.half_width_ratio)
        return f"{display.duration(cell.step_time_s)} {interval}".rstrip()
    runs = counted(cell.run_count, "run")
    middle = display.between(cell.step_time_p25_s, cell.step_time_p75_s, cell.step_time_s)
    return f"{display.duration(cell.step_time_s)} ({runs}: {middle})"


def _deviation(cell: MeasuredCell) -> str:
    return _against(cell.sent_bytes_per_step, cell.expected_bytes_per_step)


def _received(cell: MeasuredCell) -> str:
    """Told where servers send it; without any, ranks receive what ranks send."""
    has_servers = cell.values["server_count"]
    return display.byte_count(cell.received_bytes_per_step) if has_servers else MISSING


def _received_deviation(cell: MeasuredCell) -> str:
    if not cell.values["server_count"]:
        return MISSING
    return _against(cell.received_bytes_per_step, cell.expected_bytes_per_step)


def _against(measured: float | None, expected: float | None) -> str:
    if not expected or measured is None:
        return MISSING
    return f"{(measured / expected - 1) * 100:+.1f} %"


def _staleness(cell: MeasuredCell) -> str:
    if cell.staleness_mean is None:
        return MISSING
    return f"{display.decimal(cell.staleness_mean)} (max {display.count(cell.staleness_max)})"
