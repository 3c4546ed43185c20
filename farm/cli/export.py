"""`farm export`: a sweep's measurements as CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from farm.cli.session import settings, store
from farm.cli.whole_file import write_whole
from farm.errors import FarmError
from farm.store.engine import reading
from farm.store.measurements import EXPORT_COLUMNS, export_rows
from farm.store.sweeps import find_sweep

_Rows = Sequence[dict[str, object]]


@click.command()
@click.argument("sweep")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "parquet"]),
    default="csv",
    show_default=True,
)
@click.option("--out", type=click.Path(path_type=Path), help="File; standard output without it.")
def export(sweep: str, *, form: str, out: Path | None) -> None:
    """Write the measurements of a SWEEP (its id or name), one row for each finished job.

    The file appears whole or not at all.
    """
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out FILE")
    with store(settings()) as engine, reading(engine) as session:
        rows = export_rows(session, find_sweep(session, sweep).id)
    content = _WRITERS[form](rows)
    if out is None:
        sys.stdout.write(content.decode())
        return
    write_whole(out, content)
    click.echo(f"{len(rows)} measurements written to {out}", err=True)


def _csv(rows: _Rows) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, EXPORT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _json(rows: _Rows) -> bytes:
    return (json.dumps(list(rows), indent=2, allow_nan=False) + "\n").encode()


def _parquet(rows: _Rows) -> bytes:
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise FarmError("Parquet needs pyarrow: pip install pyarrow, or use --format csv") from None
    columns = {name: [row[name] for row in rows] for name in EXPORT_COLUMNS}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[_Rows], bytes]] = {"csv": _csv, "json": _json, "parquet": _parquet}
