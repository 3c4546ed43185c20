"""How long the cells of a sweep took to get so accurate, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from farm.cli.measured import Jobs, MeasuredCell, grouped, measured_cells
from farm.cli.output import Column, print_table
from farm.cli.results import distinctions
from farm.core import display
from farm.core.learning_curves import LearningCurve, time_to_accuracy
from farm.core.machine_time import cost_usd, machine_count
from farm.store.result_tables import MeasurementRow

_COLUMNS = (
    Column("batch", is_right=True),
    Column("strategy"),
    Column("world size", is_right=True),
    Column("reached", is_right=True),
    Column("epochs", is_right=True),
    Column("time", is_right=True),
    Column("cost", is_right=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccurateCell:
    """`run_count`: of the runs that were trained by epochs; see `TimeToAccuracy` for the others.

    `cost_usd`: of one training up to then, None where the price of its machines is not known.
    """

    cell: MeasuredCell
    run_count: int
    reached_count: int
    time_to_accuracy_s: float | None
    epoch_count: float | None
    cost_usd: float | None


def accurate_cells(
    rows: Sequence[MeasurementRow],
    curves: Mapping[int, LearningCurve],
    jobs: Jobs,
    *,
    target_accuracy_ratio: float,
    prices_usd_per_hour: Mapping[str, float],
) -> list[AccurateCell]:
    """Return the cells that were trained by epochs. `curves`: by attempt."""
    found = []
    for group in grouped(rows, jobs):
        ids = [row.attempt_id for row in group if row.attempt_id is not None]
        known = [curves[attempt_id] for attempt_id in ids if attempt_id in curves]
        if not known:
            continue
        reached, first = time_to_accuracy(known, target_accuracy_ratio), group[0]
        machines = machine_count(first.world_size, first.server_count, first.server_placement)
        price = prices_usd_per_hour.get(first.instance_type or "")
        [cell] = measured_cells(group, jobs)
        found.append(
            AccurateCell(
                cell=cell,
                run_count=reached.run_count,
                reached_count=reached.reached_count,
                time_to_accuracy_s=reached.time_s,
                epoch_count=reached.epoch_count,
                cost_usd=cost_usd(machines, reached.time_s, price),
            )
        )
    return found


def print_accurate_cells(found: Sequence[AccurateCell], target_accuracy_ratio: float) -> None:
    """Print a line for each, with a column in front for whatever else tells them apart."""
    if not found:
        click.echo("no cell was trained by epochs, with its accuracy after each")
        return
    columns, rows = list(_COLUMNS), [_row(one) for one in found]
    for column, texts in distinctions([one.cell for one in found]):
        columns.insert(0, column)
        rows = [[text, *row] for text, row in zip(texts, rows, strict=True)]
    print_table(columns, rows, title=f"to an accuracy of {display.percent(target_accuracy_ratio)}")


def _row(one: AccurateCell) -> list[str]:
    return [
        str(one.cell.values["global_batch_size"]),
        display.text(one.cell.values["strategy"]),
        str(one.cell.values["world_size"]),
        f"{one.reached_count} of {one.run_count}",
        display.decimal(one.epoch_count),
        display.duration(one.time_to_accuracy_s),
        display.dollars(one.cost_usd),
    ]
