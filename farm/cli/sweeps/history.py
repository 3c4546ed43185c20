"""`farm history`: what sweeps of several days measured of one cell."""

from __future__ import annotations

from collections.abc import Sequence

import click
from sqlalchemy.orm import Session

from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.history import (
    DEFAULT_SWEEPS,
    MOST_SWEEPS,
    CellHistory,
    HistoryPoint,
    read_history,
)
from farm.cells.result_table import notes, ratio_text, repetitions_text, step_time_text
from farm.cli.output import json_option, print_json, print_table
from farm.cli.ranges import CountRange
from farm.cli.session import JOB_ID, settings, store
from farm.configuration.sweep_cell import shown
from farm.store.engine import reading
from farm.store.measurements.history import MeasuredDays, cells_over_days
from farm.store.sweeps.sweeps import find_sweep
from farm.text import display
from farm.text.columns import Column

_MOST_CELLS = 1000


@click.command()
@click.argument("sweep", required=False)
@click.option("--job", "job_id", type=JOB_ID, metavar="JOB", help="Show the cell of this job.")
@click.option(
    "--last",
    "limit",
    type=CountRange(1, MOST_SWEEPS),
    default=DEFAULT_SWEEPS,
    show_default=True,
    metavar="NUMBER",
    help="Number of sweeps to show.",
)
@click.option(
    "--before", "before_id", type=JOB_ID, metavar="ID", help="Only sweeps with smaller ids."
)
@json_option
def history(
    *, sweep: str | None, job_id: int | None, limit: int, before_id: int | None, as_json: bool
) -> None:
    """List the cells of a SWEEP (its id or name) that were measured on several days.

    With --job instead, show one cell: what each sweep measured of it, whether that is slower than
    the sweep before on the same machines, and which versions had changed. It is slower, or faster,
    if the whole 95 % interval of the ratio of step times is above, or below, 1, as in `farm check`.
    Versions of a script are one cell. Of each sweep the latest 100 repetitions count.

    --json prints what `GET /api/v1/jobs/JOB/history` answers; of a SWEEP, a list of cells.
    """
    if (sweep is None) == (job_id is None):
        raise click.UsageError("expected either SWEEP or --job JOB")
    with store(settings()) as engine, reading(engine) as session:
        if job_id is not None:
            found = read_history(session, job_id, limit=limit, before_id=before_id)
            if as_json:
                print_json(found.to_json())
            else:
                _print_history(found)
            return
        _list_cells(session, str(sweep), as_json=as_json)


def _list_cells(session: Session, sweep: str, *, as_json: bool) -> None:
    found = cells_over_days(session, find_sweep(session, sweep).id, limit=_MOST_CELLS)
    configurations = [configuration_of(cell.spec) for cell in found]
    if as_json:
        both = zip(found, configurations, strict=True)
        print_json([_json(cell, configuration) for cell, configuration in both])
        return
    if not found:
        click.echo("no cell of it was measured on several days")
        return
    columns = (
        *(Column("job", is_right=True), Column("days", is_right=True)),
        *(Column("measured", is_right=True), Column("first"), Column("last"), Column("cell")),
    )
    rows = [
        (
            str(cell.job_id),
            str(cell.day_count),
            str(cell.measurement_count),
            display.clock(cell.first_at),
            display.clock(cell.last_at),
            shown(configuration.values),
        )
        for cell, configuration in zip(found, configurations, strict=True)
    ]
    print_table(columns, rows)
    click.echo(f"`farm history --job {found[0].job_id}` shows one of them")


def _json(cell: MeasuredDays, configuration: CellConfiguration) -> dict[str, object]:
    return {
        "job_id": cell.job_id,
        "values": configuration.values,
        "day_count": cell.day_count,
        "measurement_count": cell.measurement_count,
        "first_measured_at": cell.first_at,
        "last_measured_at": cell.last_at,
    }


def _print_history(found: CellHistory) -> None:
    points = found.points
    if found.next_id is not None:
        click.echo(f"older ones: --before {found.next_id}")
    columns = [Column("sweep", is_right=True), Column("measured")]
    machines = {point.machine for point in points if point.line.times_s}
    columns += [Column("machines")] if len(machines) > 1 else []
    columns += [
        *(Column("repetitions", is_right=True), Column("step time", is_right=True)),
        *(Column("ratio to before", is_right=True), Column("verdict"), Column("changed")),
    ]
    rows = [_row(point, has_machines=len(machines) > 1) for point in points]
    print_table(columns, rows, title=shown(found.configuration.values))
    for note in notes([point.line for point in points]):
        click.echo(note)


def _row(point: HistoryPoint, *, has_machines: bool) -> Sequence[str]:
    return [
        str(point.sweep_id),
        display.clock(point.measured_at),
        *([display.text(point.machine)] if has_machines else []),
        repetitions_text(point.line),
        step_time_text(point.line),
        ratio_text(point.ratio),
        point.verdict_text,
        "; ".join(point.changes),
    ]
