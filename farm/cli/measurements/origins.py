"""`farm origins`: lists where measurements come from, and removes imported ones."""

from __future__ import annotations

import dataclasses

import click

from farm.cli.output import json_option, print_json, print_table
from farm.cli.session import settings, store
from farm.importers import source_text
from farm.store.engine import reading, writing
from farm.store.measurements.imports import OriginSummary, remove_origin
from farm.store.measurements.imports import origins as summaries
from farm.text import display
from farm.text.columns import Column
from farm.text.plurals import counted

_COLUMNS = (
    Column("origin"),
    Column("measurements", is_right=True),
    Column("failed", is_right=True),
    Column("workloads", is_right=True),
    Column("kinds of hardware", is_right=True),
    Column("latest"),
    Column("source"),
)


@click.command()
@click.option("--remove", metavar="ORIGIN", help="Remove an imported origin; never the farm's own.")
@json_option
def origins(*, remove: str | None, as_json: bool) -> None:
    """List the origins of measurements: this farm, and what was imported.

    --remove ORIGIN deletes all measurements imported as ORIGIN.
    """
    if remove is not None:
        with store(settings()) as engine, writing(engine) as session:
            count = remove_origin(session, remove)
        if as_json:
            print_json({"origin": remove.strip(), "removed_count": count})
        else:
            click.echo(f"{remove.strip()}: {counted(count, 'measurement')} removed")
        return
    with store(settings()) as engine, reading(engine) as session:
        found = summaries(session)
    if as_json:
        print_json(
            [
                {
                    **dataclasses.asdict(summary),
                    "source": source_text(summary.origin, summary.source),
                }
                for summary in found
            ]
        )
    elif found:
        print_table(_COLUMNS, [_cells(summary) for summary in found])
    else:
        click.echo("nothing is measured yet, and nothing imported")


def _cells(summary: OriginSummary) -> list[str]:
    return [
        summary.origin,
        str(summary.measurement_count),
        str(summary.failed_count),
        str(summary.workload_count),
        str(summary.fingerprint_count),
        display.clock(summary.last_at),
        display.text(source_text(summary.origin, summary.source)),
    ]
