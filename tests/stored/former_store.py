"""Stores from before the first release, with rows, as those programs' migrations made them.

`former_stores/sqlite.sql` begins with what Python's `iterdump` wrote of one with schema 0014;
`postgresql.sql` with what `pg_dump --inserts --no-owner` did, without its comments and settings.
What each later migration did follows after `-- revision NAME`, with rows for the new tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

FORMER_REVISION = "0014"
_DUMPS = Path(__file__).parent / "former_stores"


def make_former_store(engine: sa.Engine, *, revision: str = FORMER_REVISION) -> None:
    """Fill an empty database; `revision` is one of those that can be converted."""
    dialect = engine.dialect.name
    sections = (_DUMPS / f"{dialect}.sql").read_text().split("-- revision ")[1:]
    names = [section.partition("\n")[0] for section in sections]
    script = "-- ".join(["", *sections[: names.index(revision) + 1]])
    script += f"\nUPDATE alembic_version SET version_num = '{revision}';"
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if dialect == "sqlite":
            # The dump has its tables in the order of their names.
            driver.executescript(f"PRAGMA foreign_keys = OFF;\n{script}\nPRAGMA foreign_keys = ON;")
        else:
            driver.execute(script)
            driver.commit()


def contents(engine: sa.Engine) -> dict[str, list[dict[str, Any]]]:
    """Read every row of every table but Alembic's, by the names of columns, in a fixed order."""
    found = {}
    with engine.connect() as connection:
        names = sa.inspect(connection).get_table_names()
        # Samples are read through the table of all partitions.
        for name in {name for name in names if not name.startswith(("alembic", "samples_"))}:
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            rows = connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()
            found[name] = [dict(row) for row in rows]
    return found
