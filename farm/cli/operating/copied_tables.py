"""What a copy of a store holds, as `farm db backup`, `restore` and `copy` say it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from farm.cli.output import Column, print_json, print_table

if TYPE_CHECKING:
    from farm.store.maintenance.copy import CopiedTable


def print_tables(tables: list[CopiedTable], *, as_json: bool) -> None:
    """Say what a copy holds, table by table."""
    if as_json:
        print_json({"tables": [dataclasses.asdict(table) for table in tables]})
        return
    columns = [Column("table"), Column("rows", is_right=True), Column("checksum")]
    print_table(columns, [[t.name, str(t.row_count), t.checksum] for t in tables])
