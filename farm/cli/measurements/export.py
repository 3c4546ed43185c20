"""`farm export`: a sweep's measurements as CSV, JSON or Parquet."""

from __future__ import annotations

import io
from pathlib import Path

import click

from farm.cli.session import settings, store
from farm.exporting import Form, write_export
from farm.processes.standard_output import print_data
from farm.processes.whole_file import write_whole
from farm.store.engine import reading
from farm.store.sweeps.sweeps import find_sweep
from farm.text.nouns import counted


@click.command()
@click.argument("sweep")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    default=Form.CSV.value,
    show_default=True,
)
@click.option("--out", type=click.Path(path_type=Path), help="File; standard output without it.")
def export(sweep: str, *, form: str, out: Path | None) -> None:
    """Write the measurements of a SWEEP (its id or name), one row for each finished job.

    The file appears whole or not at all.
    """
    if form == Form.PARQUET.value and out is None:
        raise click.UsageError("--format parquet needs --out FILE")
    file = io.BytesIO()
    with store(settings()) as engine, reading(engine) as session:
        count = write_export(session, find_sweep(session, sweep).id, Form(form), file)
    if out is None:
        print_data(file.getvalue().decode())
        return
    write_whole(out, file.getvalue())
    click.echo(f"{counted(count, 'measurement')} written to {out}", err=True)
