"""The table of how long the cells of a sweep took to get so accurate, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from farm.cells.accurate_cells import AccurateCell
from farm.cells.table import CellLine
from farm.cli.output import Column, print_table
from farm.cli.sweeps.results import distinctions, line_json
from farm.text.display import count, decimal, dollars, duration, percent


def accurate_json(found: Sequence[AccurateCell], by_job: Mapping[int, CellLine]) -> list[object]:
    """Return the cells for programs. `by_job`: the lines of their jobs."""
    return [
        {
            "cell": line_json(by_job[one.job_ids[0]]),
            "run_count": one.reached.run_count,
            "reached_count": one.reached.reached_count,
            "time_to_accuracy_s": one.reached.time_s,
            "epoch_count": one.reached.epoch_count,
            "cost_usd": one.cost_usd,
        }
        for one in found
        if one.reached is not None
    ]


def print_accurate_cells(
    found: Sequence[AccurateCell], by_job: Mapping[int, CellLine], target_accuracy_ratio: float
) -> None:
    """Print a line for each, with a column in front for whatever else tells them apart."""
    if not found:
        click.echo("no cell was trained by epochs, with its accuracy after each")
        return
    reached = [one.reached for one in found if one.reached is not None]
    columns = [
        *distinctions([by_job[one.job_ids[0]] for one in found]),
        (
            Column("batch", is_right=True),
            [count(one.configuration["global_batch_size"]) for one in found],
        ),
        (Column("strategy"), [str(one.configuration["strategy"]) for one in found]),
        (
            Column("world size", is_right=True),
            [count(one.configuration["world_size"]) for one in found],
        ),
        (
            Column("reached", is_right=True),
            [f"{one.reached_count} of {one.run_count}" for one in reached],
        ),
        (Column("epochs", is_right=True), [decimal(one.epoch_count) for one in reached]),
        (Column("time", is_right=True), [duration(one.time_s) for one in reached]),
        (Column("cost", is_right=True), [dollars(one.cost_usd) for one in found]),
    ]
    rows = [list(row) for row in zip(*(texts for _, texts in columns), strict=True)]
    title = f"to an accuracy of {percent(target_accuracy_ratio)}"
    print_table([column for column, _ in columns], rows, title=title)
