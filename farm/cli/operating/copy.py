"""`farm db copy`, `backup` and `restore`: a whole store moved, or saved in one file and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.cli.operating.row_bar import row_bar
from farm.cli.output import Column, json_option, print_json, print_table
from farm.cli.session import require_file, settings

if TYPE_CHECKING:
    from farm.store.maintenance.copy import CopiedTable

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--from", "source_url", metavar="URL", help="The store to read; the farm's own else.")
@click.option("--to", "target_url", metavar="URL", required=True, help="An empty database.")
@click.option("--force", is_flag=True, help="Copy although the farm is at work.")
@json_option
def copy(source_url: str | None, *, target_url: str, force: bool, as_json: bool) -> None:
    """Copy a whole store into an empty database, and compare both.

    The target has all rows afterwards or, after an error, none; the source is only read. A
    password need not be typed: PostgreSQL's PGPASSWORD and ~/.pgpass work too. --json prints the
    tables with row_count and checksum.
    """
    from farm.settings.database_url import check_database_url
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.copy import copy_store

    loaded = settings()
    may_be_plain = loaded.plaintext.database
    check = partial(check_database_url, environ=os.environ, may_be_plain=may_be_plain)
    if source_url is None:
        source_url = loaded.database_url
        require_file(source_url)
    else:
        require_file(source_url, origin="--from")
        check(source_url, name="--from")
    check(target_url, name="--to")
    source = make_engine(source_url, name="--from")
    target = make_engine(target_url, name="--to")
    try:
        with row_bar("copying") as progress:
            tables = copy_store(
                source,
                target,
                now=dt.datetime.now(dt.UTC),
                is_forced=force,
                progress=progress,
            )
    finally:
        source.dispose()
        target.dispose()
    _print_tables(tables, as_json=as_json)
    if not as_json:
        click.echo(
            f"Now set FARM_DATABASE_URL to {redacted(target_url)} wherever the farm is set up, and "
            "run `farm db takeover` with it."
        )


@click.command()
@click.argument("file", type=_FILE)
@json_option
def backup(file: Path, *, as_json: bool) -> None:
    """Write the whole store, as it is now, into a new FILE.

    The farm may be at work. FILE is an SQLite database, whatever the store is, and nobody else may
    read it. --json prints the tables with row_count and checksum.
    """
    from farm.store.engine import make_engine
    from farm.store.maintenance.backup import back_up

    loaded = settings()
    require_file(loaded.database_url)
    engine = make_engine(loaded.database_url)
    try:
        with row_bar("writing") as progress:
            tables = back_up(engine, file, now=dt.datetime.now(dt.UTC), progress=progress)
    finally:
        engine.dispose()
    _print_tables(tables, as_json=as_json)


@click.command()
@click.argument("file", type=_FILE)
@json_option
def restore(file: Path, *, as_json: bool) -> None:
    """Fill the farm's store, which must be empty or absent, from a backup.

    FILE is only read, and may be of an older version: a copy of it is upgraded, or converted if it
    has schema 0014 of before the first release. Start scheduler, collector and web server
    afterwards; agents may have gone on all the while. --json as for backup.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.backup import restore as restore_store

    loaded = settings()
    engine = make_engine(loaded.database_url)
    try:
        with row_bar("restoring") as progress:
            tables = restore_store(file, engine, now=dt.datetime.now(dt.UTC), progress=progress)
    finally:
        engine.dispose()
    _print_tables(tables, as_json=as_json)
    if not as_json:
        click.echo(f"{redacted(loaded.database_url)} holds what {file} held")


def _print_tables(tables: list[CopiedTable], *, as_json: bool) -> None:
    """Say what a copy holds, table by table."""
    if as_json:
        print_json({"tables": [dataclasses.asdict(table) for table in tables]})
        return
    columns = [Column("table"), Column("rows", is_right=True), Column("checksum")]
    print_table(columns, [[t.name, str(t.row_count), t.checksum] for t in tables])
